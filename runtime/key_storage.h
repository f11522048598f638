// Where keys and values lie: one sequence after the other, in pages, or in rings. Kernels see neither of them, but
// granules of 16 keys and a table that says where each is.
#pragma once

#include <cstdint>

#include "hattn/hattn.h"
#include "problem.h"
#include "selection.h"

namespace hattn {

// Key j lies at base + table[j / 16 - first] * unit + (j % 16) * row_stride, in elements.
struct GranuleAddress {
    const void *base;
    int64_t unit, row_stride;
    const int32_t *table;
};

// A run of a sequence's granules: those of keys [16 first, 16 (first + count)). Up to kMaxGranulesPerCall of them.
struct GranuleRange {
    int64_t first, count;
};
inline constexpr int64_t kMaxGranulesPerCall = kMaxKeysPerCall / kGranuleKeys;

// Says where granules of args.k or args.v, or of their scales (`side`), lie for one kv head of a sequence. The table
// may be written to `own`, which has room for range.count entries. All granules must hold keys of the sequence; rows
// past its length, in the last one, may lie outside the tensor.
GranuleAddress locate_granules(const Problem &problem, const hattn_attention_args &args, const hattn_tensor &side,
                               int64_t batch, int64_t kv_head, const GranuleRange &range, int32_t *own);

// Ascending: granules that lie one after the other, or all in one place if their stride is 0.
const int32_t *ascending_granules();
// The unit of its entries.
int64_t granule_unit(const Problem &problem, const hattn_tensor &side);

// The elements of so many pages, and of the rows of one, by their strides, which kernels count with 32 bits. Throws,
// naming `name`, beyond 64 bits.
int64_t granule_reach(const hattn_tensor &side, int64_t pages, const char *name);
inline constexpr int64_t kMaxGranuleReach = INT32_MAX;
// Throws where args.k or args.v spans more than that.
void check_granules(const Problem &problem, const hattn_tensor &side, const char *name);

// Sk: the last extent of bias, mask and scores. With packed keys those of the longest sequence.
int64_t key_extent(const Problem &problem, const hattn_attention_args &args);

}  // namespace hattn
