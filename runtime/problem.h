// A validated attention problem: what a plan is made for.
#pragma once

#include <cstdint>

#include "hattn/hattn.h"

namespace hattn {

// Largest extent, position and offset the kernels compute with: sums of three stay within 32 bits.
inline constexpr int64_t kMaxExtent = int64_t{1} << 29;

// Throws unless keys of so many elements can lie side by side: that is the largest stride between them.
void check_head(int64_t dim, const char *name);
inline constexpr int64_t kMaxKeyStride = int64_t{1} << 16;
// Throws unless a device may have such a number.
void check_device_id(hattn_device device, int32_t device_id);
// Throws unless a value that counts something is from `least` to kMaxExtent.
void check_extent(int64_t value, int64_t least, const char *name);

struct Problem {
    hattn_dtype q_dtype, k_dtype, v_dtype, out_dtype;
    int64_t batch, query_heads, kv_heads, query_length, kv_length, key_dim, value_dim;
    float scale, softcap;
    bool causal;
    int64_t window_left, window_right;  // -1: unbounded
    uint32_t hooks;                     // bits of the kernel table
    bool has_bias, has_mask, has_alibi, has_sinks;
    hattn_scores scores;
    hattn_algorithm algorithm;
    int32_t threads;         // 0: the context's
    int64_t packed_queries;  // 0: padded to query_length; else the most rows of all sequences together
    int64_t page_size;       // 0: none
    bool ring;
    hattn_device device;
    int32_t device_id;

    // Keys or values are of another type than float32, which takes kernels for any.
    bool any_storage() const {
        return k_dtype != HATTN_FLOAT32 || v_dtype != HATTN_FLOAT32;
    }
    bool stored_as(hattn_dtype type) const {  // keys and values are
        return k_dtype == type && v_dtype == type;
    }
    // Those, and queries, are all bfloat16: kernels may multiply them as they are.
    bool all_bfloat16() const {
        return q_dtype == HATTN_BFLOAT16 && k_dtype == HATTN_BFLOAT16 && v_dtype == HATTN_BFLOAT16;
    }
    // Queries and keys are the sum of two bfloat16 numbers, and no tensor is float32.
    bool has_two_terms() const {
        const auto is_half = [](hattn_dtype type) { return type == HATTN_FLOAT16 || type == HATTN_BFLOAT16; };
        return is_half(q_dtype) && is_half(k_dtype) && v_dtype != HATTN_FLOAT32 && out_dtype != HATTN_FLOAT32;
    }
    // Keys lie elsewhere than in rows 0, 1, ... of k[b].
    bool scattered() const {
        return page_size > 0 || ring;
    }
    int64_t group_size() const {
        return query_heads / kv_heads;
    }
    // The most query rows that one head of an execute has.
    int64_t total_rows() const {
        return packed_queries > 0 ? packed_queries : batch * query_length;
    }
};

// Throws unless size is 0 or one that pages may have.
void check_page_size(int64_t size);

// Checks every member and combination; throws StatusError naming the member and both values.
Problem validate_problem(const hattn_attention_desc &desc);

}  // namespace hattn
