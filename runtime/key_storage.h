// Where keys and values lie: one sequence after the other, in pages, or in rings. Kernels see neither of them, but
// granules of 16 keys and a table that says where each is.
#pragma once

#include <cstdint>

#include "hattn/hattn.h"
#include "problem.h"

namespace hattn {

inline constexpr int64_t kGranuleKeys = 16;

// Key j lies at base + table[j / 16 - first] * unit + (j % 16) * row_stride, in elements.
struct GranuleAddress {
    const float *base;
    int64_t unit, row_stride;
};

// A run of a sequence's granules: those of keys [16 first, 16 (first + count)).
struct GranuleRange {
    int64_t first, count;
};

// Says where granules of args.k or args.v (`side`) lie for one kv head of a sequence, and fills table[0..range.count).
// All granules must hold keys of the sequence; rows past its length, in the last one, may lie outside the tensor.
GranuleAddress locate_granules(const Problem &problem, const hattn_attention_args &args, const hattn_tensor &side,
                               int64_t batch, int64_t kv_head, const GranuleRange &range, int32_t *table);

// Throws unless the entries of a table for args.k or args.v fit.
void check_granules(const Problem &problem, const hattn_tensor &side, const char *name);

// Sk: the last extent of bias, mask and scores.
int64_t key_extent(const Problem &problem, const hattn_attention_args &args);

// Throws where kernels do not go through a table yet.
void check_kernels_read(const Problem &problem);

}  // namespace hattn
