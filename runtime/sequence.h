// One batch entry of one execute, and the keys its rows see.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel_table.h"
#include "problem.h"

namespace hattn {

struct KeyRange {
    int64_t begin = 0, end = 0;
    bool empty() const {
        return end <= begin;
    }
    int64_t size() const {
        return end - begin;
    }
};

struct Sequence {
    int64_t query_length;               // rows that exist
    int64_t query_rows;                 // rows the output has
    int64_t kv_length;                  // keys that exist
    int64_t offset;                     // position of row 0 among the keys
    int64_t first_offset, last_offset;  // row i sees keys i + first_offset .. i + last_offset

    Sequence(const Problem &problem, const hattn_attention_args &args, int64_t batch)
        : query_length(args.q_lengths ? args.q_lengths[batch] : args.q.extent[2]),
          query_rows(args.q.extent[2]),
          kv_length(args.kv_lengths ? args.kv_lengths[batch] : args.k.extent[2]),
          offset(args.causal_offsets ? args.causal_offsets[batch] : kv_length - query_length) {
        const int64_t left = problem.window_left < 0 ? kMaxExtent : problem.window_left;
        const int64_t right = problem.window_right < 0 ? kMaxExtent : problem.window_right;
        first_offset = problem.window_left < 0 ? -kMaxExtent : std::max(offset - left, -kMaxExtent);
        last_offset = problem.causal             ? offset
                      : problem.window_right < 0 ? kMaxExtent
                                                 : std::min(offset + right, kMaxExtent);
    }

    // Keys that any of the rows [row, row + rows) sees, from the start of a granule on.
    KeyRange visible(int64_t row, int64_t rows) const {
        const int64_t begin = std::clamp<int64_t>(row + first_offset, 0, kv_length);
        const int64_t end = std::clamp<int64_t>(row + rows - 1 + last_offset + 1, 0, kv_length);
        return {begin < end ? begin - begin % kGranuleKeys : end, end};
    }
};

}  // namespace hattn
