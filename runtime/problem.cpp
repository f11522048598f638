#include "problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checked.h"
#include "context.h"
#include "kernel_registry.h"
#include "status.h"
#include "tensor.h"

namespace hattn {

void check_extent(int64_t value, int64_t least, const char *name) {
    require(value >= least, HATTN_INVALID_ARGUMENT, name, ": is ", value, ", but must be at least ", least);
    require(value <= kMaxExtent, HATTN_OVERFLOW, name, ": is ", value, ", but the kernels count up to ", kMaxExtent);
}

void check_head(int64_t dim, const char *name) {
    require(dim <= kMaxKeyStride, HATTN_NOT_SUPPORTED, name, ": is ", dim, ", but heads have at most ", kMaxKeyStride,
            " elements");
}

void check_device_id(hattn_device device, int32_t device_id) {
    require(device_id >= 0 && (device_id == 0 || device == HATTN_CUDA), HATTN_INVALID_ARGUMENT, "device_id: is ",
            device_id, ", but must be ", device == HATTN_CUDA ? "at least 0" : "0 unless device is 2 (cuda)");
}

namespace {

void check_flag(int32_t value, const char *name) {
    require(value == 0 || value == 1, HATTN_INVALID_ARGUMENT, name, ": is ", value, ", but must be 0 or 1");
}

const char *scores_name(hattn_scores scores) {
    static constexpr const char *kNames[] = {"none", "raw", "capped", "masked", "probabilities"};
    return kNames[scores];
}

// What a type that may be left out is.
hattn_dtype dtype_or(hattn_dtype given, hattn_dtype otherwise) {
    return given == hattn_dtype{} ? otherwise : given;
}

void check_dtypes_and_device(const hattn_attention_desc &desc) {
    check_float_dtype(desc.dtype, "dtype");
    check_storage_dtype(dtype_or(desc.k_dtype, desc.dtype), "k_dtype");
    check_storage_dtype(dtype_or(desc.v_dtype, desc.dtype), "v_dtype");
    check_float_dtype(dtype_or(desc.out_dtype, desc.dtype), "out_dtype");
    require(desc.device >= HATTN_CPU && desc.device <= HATTN_CUDA, HATTN_INVALID_ARGUMENT, "device: is ",
            static_cast<int>(desc.device), ", which is no hattn_device");
    check_device_id(desc.device, desc.device_id);
}

void check_extents(const hattn_attention_desc &desc) {
    check_extent(desc.batch, 0, "batch");
    check_extent(desc.query_heads, 1, "query_heads");
    check_extent(desc.kv_heads, 1, "kv_heads");
    check_extent(desc.query_length, 0, "query_length");
    check_extent(desc.kv_length, 0, "kv_length");
    check_extent(desc.key_dim, 1, "key_dim");
    check_extent(desc.value_dim, 1, "value_dim");
    check_head(desc.key_dim, "key_dim");
    check_head(desc.value_dim, "value_dim");
    check_extent(desc.packed_queries, 0, "packed_queries");
    require(desc.query_heads % desc.kv_heads == 0, HATTN_INVALID_ARGUMENT, "query_heads: is ", desc.query_heads,
            ", but must be a multiple of kv_heads, which is ", desc.kv_heads);
    const auto bytes = [&](int64_t rows, int64_t heads, int64_t dim, const char *what) {
        return checked_multiply(checked_multiply(checked_multiply(rows, heads, what), dim, what),
                                static_cast<int64_t>(sizeof(float)), what);
    };
    const int64_t rows = desc.packed_queries > 0 ? desc.packed_queries : desc.batch * desc.query_length;
    bytes(rows, desc.query_heads, std::max(desc.key_dim, desc.value_dim), "size of q or out");
    bytes(desc.batch * desc.kv_length, desc.kv_heads, std::max(desc.key_dim, desc.value_dim), "size of k or v");
    if (desc.scores != HATTN_SCORES_NONE) {
        bytes(rows, desc.query_heads, desc.kv_length, "size of scores");
    }
}

void check_options(const hattn_attention_desc &desc) {
    require(std::isnan(desc.scale) || std::isfinite(desc.scale), HATTN_INVALID_ARGUMENT, "scale: is ", desc.scale,
            ", but must be finite, or NaN for 1/sqrt(key_dim)");
    require(std::isfinite(desc.softcap) && desc.softcap >= 0, HATTN_INVALID_ARGUMENT, "softcap: is ", desc.softcap,
            ", but must be positive, or 0 for none");
    require(desc.window_left >= -1, HATTN_INVALID_ARGUMENT, "window_left: is ", desc.window_left,
            ", but must be at least -1");
    require(desc.window_right >= -1, HATTN_INVALID_ARGUMENT, "window_right: is ", desc.window_right,
            ", but must be at least -1");
    check_flag(desc.causal, "causal");
    check_flag(desc.has_bias, "has_bias");
    check_flag(desc.has_mask, "has_mask");
    check_flag(desc.has_alibi, "has_alibi");
    check_flag(desc.has_sinks, "has_sinks");
    require(desc.scores >= HATTN_SCORES_NONE && desc.scores <= HATTN_SCORES_PROBABILITIES, HATTN_INVALID_ARGUMENT,
            "scores: is ", static_cast<int>(desc.scores), ", which is no hattn_scores");
    require(desc.scores == HATTN_SCORES_NONE || desc.packed_queries == 0, HATTN_NOT_SUPPORTED, "scores: is ",
            static_cast<int>(desc.scores), " (", scores_name(desc.scores), "), but packed_queries is ",
            desc.packed_queries, ", and packed queries have no score output yet");
    require(desc.algorithm >= HATTN_ALGORITHM_AUTO && desc.algorithm <= HATTN_ALGORITHM_UNFUSED, HATTN_INVALID_ARGUMENT,
            "algorithm: is ", static_cast<int>(desc.algorithm), ", which is no hattn_algorithm");
    require(desc.threads >= 0 && desc.threads <= kMaxThreads, HATTN_INVALID_ARGUMENT, "threads: is ", desc.threads,
            ", but must be from 0 (the context's) to ", kMaxThreads);
}

void check_key_storage(const hattn_attention_desc &desc) {
    check_page_size(desc.page_size);
    check_flag(desc.ring, "ring");
    if (desc.ring == 0) {
        return;
    }
    require(desc.page_size == 0, HATTN_INVALID_ARGUMENT, "ring: is 1, but must be 0 with a page_size, which is ",
            desc.page_size);
    require(desc.window_left >= 0 && (desc.window_left < desc.kv_length || desc.kv_length == 0), HATTN_INVALID_ARGUMENT,
            "window_left: is ", desc.window_left, ", but with a ring must be from 0 to below kv_length, which is ",
            desc.kv_length);
    require(desc.scores == HATTN_SCORES_NONE, HATTN_NOT_SUPPORTED, "scores: is ", static_cast<int>(desc.scores), " (",
            scores_name(desc.scores), "), but with a ring only 0 (none) is supported");
}

uint32_t hooks_of(const hattn_attention_desc &desc) {
    return (desc.softcap > 0 ? hook_bit("softcap") : 0) | (desc.has_bias ? hook_bit("bias") : 0) |
           (desc.has_alibi ? hook_bit("alibi") : 0) | (desc.has_mask ? hook_bit("mask") : 0);
}

}  // namespace

void check_page_size(int64_t size) {
    require(size == 0 || size == 16 || size == 32 || size == 64 || size == 128, HATTN_INVALID_ARGUMENT,
            "page_size: is ", size, ", but must be 16, 32, 64 or 128 keys, or 0 for none");
}

Problem validate_problem(const hattn_attention_desc &desc) {
    check_dtypes_and_device(desc);
    check_extents(desc);
    check_options(desc);
    check_key_storage(desc);
    Problem problem;
    problem.q_dtype = desc.dtype;
    problem.k_dtype = dtype_or(desc.k_dtype, desc.dtype);
    problem.v_dtype = dtype_or(desc.v_dtype, desc.dtype);
    problem.out_dtype = dtype_or(desc.out_dtype, desc.dtype);
    problem.batch = desc.batch;
    problem.query_heads = desc.query_heads;
    problem.kv_heads = desc.kv_heads;
    problem.query_length = desc.query_length;
    problem.kv_length = desc.kv_length;
    problem.key_dim = desc.key_dim;
    problem.value_dim = desc.value_dim;
    problem.scale =
        std::isnan(desc.scale) ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(desc.key_dim))) : desc.scale;
    problem.softcap = desc.softcap;
    problem.causal = desc.causal != 0;
    // Of which any row sees all keys on its side: positions are from -2^29 to 2^30.
    problem.window_left = std::min(desc.window_left, 2 * kMaxExtent);
    problem.window_right = std::min(desc.window_right, 2 * kMaxExtent);
    problem.hooks = hooks_of(desc);
    problem.has_bias = desc.has_bias != 0;
    problem.has_mask = desc.has_mask != 0;
    problem.has_alibi = desc.has_alibi != 0;
    problem.has_sinks = desc.has_sinks != 0;
    problem.scores = desc.scores;
    problem.algorithm = desc.algorithm;
    problem.threads = desc.threads;
    problem.packed_queries = desc.packed_queries;
    problem.page_size = desc.page_size;
    problem.ring = desc.ring != 0;
    problem.device = desc.device;
    problem.device_id = desc.device_id;
    return problem;
}

}  // namespace hattn

void hattn_attention_desc_init(hattn_attention_desc *desc) {
    if (!desc) {
        return;
    }
    std::memset(desc, 0, sizeof(*desc));  // padding as well: copies may be compared byte by byte
    desc->struct_size = sizeof(*desc);
    desc->dtype = HATTN_FLOAT32;
    desc->device = HATTN_CPU;
    desc->scale = NAN;
    desc->window_left = -1;
    desc->window_right = -1;
}
