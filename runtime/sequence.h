// One batch entry of one execute, and the keys its rows see.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel_table.h"
#include "problem.h"
#include "tensor.h"

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

// Where the rows of one sequence lie in a tensor: in a batch entry of their own, or packed behind those of the
// sequences before.
struct StoredRows {
    int64_t batch, first, count;

    StoredRows(const hattn_tensor &tensor, const int32_t *cu_seqlens, int64_t sequence)
        : batch(cu_seqlens ? 0 : sequence),
          first(cu_seqlens ? cu_seqlens[sequence] : 0),
          count(cu_seqlens ? cu_seqlens[sequence + 1] - first : tensor.extent[2]) {}
};

template<typename T>
T *element(const hattn_tensor &tensor, const StoredRows &rows, int64_t head, int64_t row) {
    return element<T>(tensor, rows.batch, head, rows.first + row);
}

// The same for a kernel, which counts rows from the first of its tile and keys from the first of its range.
struct TileLimits {
    int32_t first_offset, last_offset, position_offset, key_skip;
};

struct Sequence {
    StoredRows queries;                 // of q, out and lse; past query_length they are padding
    StoredRows keys;                    // of k and v, likewise
    int64_t query_length;               // rows that exist
    int64_t kv_length;                  // keys that exist
    int64_t offset;                     // position of row 0 among the keys
    int64_t first_offset, last_offset;  // row i sees keys i + first_offset .. i + last_offset

    Sequence(const Problem &problem, const hattn_attention_args &args, int64_t batch)
        : queries(args.q, args.cu_seqlens_q, batch),
          keys(args.k, args.cu_seqlens_k, batch),
          query_length(args.q_lengths ? args.q_lengths[batch] : queries.count),
          kv_length(args.kv_lengths ? args.kv_lengths[batch] : keys.count),
          offset(args.causal_offsets ? args.causal_offsets[batch] : kv_length - query_length) {
        const int64_t left = problem.window_left < 0 ? kMaxExtent : problem.window_left;
        const int64_t right = problem.window_right < 0 ? kMaxExtent : problem.window_right;
        first_offset = problem.window_left < 0 ? -kMaxExtent : std::max(offset - left, -kMaxExtent);
        last_offset = problem.causal             ? offset
                      : problem.window_right < 0 ? kMaxExtent
                                                 : std::min(offset + right, kMaxExtent);
    }

    // The first key that the row may see, if it sees any.
    int64_t first_key(int64_t row) const {
        return std::clamp<int64_t>(row + first_offset, 0, kv_length);
    }

    // Keys that any of the rows [row, row + rows) sees, from the start of a granule on.
    KeyRange visible(int64_t row, int64_t rows) const {
        const int64_t begin = first_key(row);
        const int64_t end = std::clamp<int64_t>(row + rows - 1 + last_offset + 1, 0, kv_length);
        return {begin < end ? begin - begin % kGranuleKeys : end, end};
    }

    TileLimits limits(int64_t row, int64_t first_of_keys) const {
        const int64_t shift = row - first_of_keys;
        const auto bounded = [&](int64_t value) {
            return static_cast<int32_t>(std::clamp(value + shift, -2 * kMaxExtent, 2 * kMaxExtent - 1));
        };
        const int32_t first = bounded(first_offset);
        return {first, bounded(last_offset), static_cast<int32_t>(offset + shift),
                std::clamp(first, 0, static_cast<int32_t>(kGranuleKeys - 1))};
    }
};

}  // namespace hattn
