#include "execute_args.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "checked.h"
#include "key_storage.h"
#include "row_counts.h"
#include "sequence.h"
#include "status.h"
#include "stored_keys.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

// Kernels index with 32 bits inside a call of kMaxKeysPerCall (2^13) keys and up to 128 rows of all its heads. With
// short strides of heads these are n of 128 / n rows: 2^13 * 2^16 + n * 2^23 + 128 / n * 2^23 < 2^31. With long ones a
// call has up to 8 heads: 2^13 * 2^16 + max(2^7 * 2^23, 2^4 * 2^23 + 2^3 * 2^27) < 2^31. Where rows are no more than
// half as far apart, as many again: tiles have up to 256.
constexpr int64_t kMaxHeadStride = int64_t{1} << 27;
constexpr int64_t kMostFarHeads = 8;
constexpr int64_t kMostFarRows = 128;

// They index scales of channels, or of blocks beside those of such a call's keys, 2^29 apart at most.
constexpr int64_t kMaxScaleReach = int64_t{1} << 30;

void check_query_side(const Problem &p, const hattn_attention_args &args) {
    check_tensor(args.q, "q", p.q_dtype, p.device);
    check_tensor(args.out, "out", p.out_dtype, p.device);
    const bool packed = p.packed_queries > 0;
    const int64_t batch = packed ? 1 : p.batch, rows = packed ? p.packed_queries : p.query_length;
    const char *batch_name = packed ? "the batch of packed queries" : "the plan's batch";
    // More than the plan was made for is a matter of capacity.
    require(packed || args.q.extent[0] <= p.batch, HATTN_CAPACITY_EXCEEDED, "q: extent[0] (batch) is ",
            args.q.extent[0], ", but the plan's batch is ", p.batch);
    check_tensor_extent(args.q, "q", kQueryDimensions, 0, batch, batch_name);
    check_tensor_extent(args.q, "q", kQueryDimensions, 1, p.query_heads, "the plan's query_heads");
    check_tensor_extent(args.q, "q", kQueryDimensions, 3, p.key_dim, "the plan's key_dim");
    require(args.q.extent[2] <= rows, HATTN_CAPACITY_EXCEEDED, "q: extent[2] (query length) is ", args.q.extent[2],
            ", but the plan's ", packed ? "packed_queries" : "query_length", " is ", rows);
    check_tensor_extent(args.out, "out", kQueryDimensions, 0, batch, batch_name);
    check_tensor_extent(args.out, "out", kQueryDimensions, 1, p.query_heads, "the plan's query_heads");
    check_tensor_extent(args.out, "out", kQueryDimensions, 2, args.q.extent[2], "the query length of q");
    check_tensor_extent(args.out, "out", kQueryDimensions, 3, p.value_dim, "the plan's value_dim");
    check_unit_stride(args.q, "q");
    check_unit_stride(args.out, "out");
    check_distinct_elements(args.out, "out");
    for (const auto &[tensor, name] : {std::pair(&args.q, "q"), std::pair(&args.out, "out")}) {
        check_stride_limit(*tensor, name, 1, kMaxHeadStride);
        check_stride_limit(*tensor, name, 2, kMaxRowStride);
    }
}

void check_key_side(const Problem &p, const hattn_attention_args &args) {
    const struct {
        const hattn_tensor &tensor;
        const char *name;
        hattn_dtype dtype;
        int64_t dim;
        const char *dim_name;
    } sides[] = {{args.k, "k", p.k_dtype, p.key_dim, "the plan's key_dim"},
                 {args.v, "v", p.v_dtype, p.value_dim, "the plan's value_dim"}};
    const DimensionNames &names = p.page_size > 0 ? kPageDimensions : kKeyDimensions;
    for (const auto &side : sides) {
        check_tensor(side.tensor, side.name, side.dtype, p.device);
        check_tensor_extent(side.tensor, side.name, names, 1, p.kv_heads, "the plan's kv_heads");
        check_tensor_extent(side.tensor, side.name, names, 3, side.dim, side.dim_name);
        if (p.page_size > 0) {
            check_tensor_extent(side.tensor, side.name, names, 0, args.k.extent[0], "the number of pages of k");
            check_tensor_extent(side.tensor, side.name, names, 2, p.page_size, "the plan's page_size");
        } else {
            check_tensor_extent(side.tensor, side.name, names, 0, args.cu_seqlens_k ? 1 : p.batch,
                                args.cu_seqlens_k ? "the batch of packed keys" : "the plan's batch");
            require(args.cu_seqlens_k || side.tensor.extent[2] <= p.kv_length, HATTN_CAPACITY_EXCEEDED, side.name,
                    ": extent[2] (kv length) is ", side.tensor.extent[2], ", but the plan's kv_length is ",
                    p.kv_length);
        }
        check_unit_stride(side.tensor, side.name);
        check_stride_limit(side.tensor, side.name, 2, kMaxKeyStride);
        check_granules(p, side.tensor, side.name);
    }
    check_tensor_extent(args.v, "v", names, 2, args.k.extent[2], "the kv length of k");
    require(!p.ring || args.k.extent[2] % kGranuleKeys == 0, HATTN_INVALID_ARGUMENT, "k: extent[2] (kv length) is ",
            args.k.extent[2], ", but a ring must be a multiple of ", kGranuleKeys);
}

void check_scale_reach(const Problem &p, const hattn_tensor &scale, const char *name, bool of_keys) {
    const int64_t reach =
        checked_multiply(std::max<int64_t>(scale.extent[3] - 1, 0), std::llabs(used_stride(scale, 3)), name);
    require(reach <= kMaxScaleReach, HATTN_NOT_SUPPORTED, name, ": extent[3] is ", scale.extent[3],
            " and stride[3] is ", scale.stride[3], ", but scales of a row may span at most ", kMaxScaleReach,
            " elements");
    if (of_keys && p.scattered()) {
        const int64_t rows = granule_reach(scale, p.page_size > 0 ? scale.extent[0] : 1, name);
        require(rows + reach <= kMaxGranuleReach, HATTN_NOT_SUPPORTED, name, ": its rows span ", rows,
                " elements and scales of a row ", reach, ", but ", p.ring ? "a ring" : "pages", " may span at most ",
                kMaxGranuleReach);
    }
}

// Of one side: for the tensor, heads or channels, or for every key.
void check_scale(const Problem &p, const hattn_tensor &scale, const char *name, const hattn_tensor &side,
                 const char *side_name) {
    read_struct(&scale, name);
    const bool expected = is_quantized(side.dtype);
    require(expected || !scale.data, HATTN_INVALID_ARGUMENT, name, ": data is given, but ", side_name, " is ",
            NamedDtype{side.dtype});
    if (!expected || (is_empty(side) && !scale.data)) {
        return;
    }
    require(scale.data, HATTN_INVALID_ARGUMENT, name, ": data is null, but ", side_name, " is ",
            NamedDtype{side.dtype});
    check_tensor(scale, name, HATTN_FLOAT32, p.device);
    if (!scales_keys(scale, side.extent[3])) {
        require(scale.extent[1] == 1 || scale.extent[1] == p.kv_heads, HATTN_INVALID_ARGUMENT, name,
                ": extent[1] (kv heads) is ", scale.extent[1], ", but must be 1 or ", p.kv_heads);
        check_scale_reach(p, scale, name, false);
        return;
    }
    const DimensionNames &names = p.page_size > 0 ? kPageDimensions : kKeyDimensions;
    const int64_t blocks = ceil_div(side.extent[3], kScaleBlock);
    // Of one sequence and one key, which side may not have: rather meant for channels.
    const bool of_channels = scale.extent[0] == 1 && scale.extent[2] == 1 && scale.extent[3] != blocks;
    require(!of_channels, HATTN_INVALID_ARGUMENT, name, ": extent[3] (head dimension) is ", scale.extent[3],
            ", but must be 1, ", side.extent[3], ", one for each channel of ", side_name, ", or ", blocks,
            ", one for each ", kScaleBlock, " elements of a key");
    const int exact = p.page_size > 0 ? 3 : 2;  // without pages there may be more rows
    for (int d = 0; d < exact; ++d) {
        check_tensor_extent(scale, name, names, d, side.extent[d], side_name);
    }
    require(scale.extent[2] >= side.extent[2], HATTN_INVALID_ARGUMENT, name, ": extent[2] (", names.name[2], ") is ",
            scale.extent[2], ", but must be at least that of ", side_name, ", ", side.extent[2]);
    require(scale.extent[3] == blocks, HATTN_INVALID_ARGUMENT, name, ": extent[3] (head dimension) is ",
            scale.extent[3], ", but must be ", blocks, ", one for each ", kScaleBlock, " elements of ", side_name);
    check_stride_limit(scale, name, 2, kMaxKeyStride);
    check_granules(p, scale, name);
    check_scale_reach(p, scale, name, true);
}

void check_block_table(const Problem &p, const hattn_attention_args &args) {
    require(!args.block_table == (p.page_size == 0) || p.batch == 0, HATTN_INVALID_ARGUMENT, "block_table: is ",
            args.block_table ? "given" : "null", ", but the plan's page_size is ", p.page_size);
    require(!args.block_table || args.block_table_stride <= kMaxExtent, HATTN_INVALID_ARGUMENT,
            "block_table_stride: is ", args.block_table_stride, ", but must be at most ", kMaxExtent);
    for (int64_t b = 0; b < p.batch && args.block_table; ++b) {
        const int64_t pages = ceil_div(args.kv_lengths[b], p.page_size);
        require(pages <= args.block_table_stride, HATTN_INVALID_ARGUMENT, "block_table_stride: is ",
                args.block_table_stride, ", but kv_lengths[", b, "] is ", args.kv_lengths[b], ", which takes ", pages,
                " pages of ", p.page_size, " keys");
        const int32_t *row = args.block_table + b * args.block_table_stride;
        for (int64_t n = 0; n < pages; ++n) {
            require(row[n] >= 0 && row[n] < args.k.extent[0], HATTN_INVALID_ARGUMENT, "block_table[", b, "][", n,
                    "]: is ", row[n], ", but k has ", args.k.extent[0], " pages");
        }
    }
}

// Rows may not see keys that later ones have replaced.
void check_ring(const Problem &p, const hattn_attention_args &args) {
    for (int64_t b = 0; b < p.batch && p.ring; ++b) {
        const Sequence sequence(p, args, b);
        const int64_t kept = std::max<int64_t>(0, sequence.kv_length - args.k.extent[2]);
        const int64_t seen = sequence.first_key(0);
        const bool sees_none = sequence.query_length == 0 || sequence.visible(0, sequence.query_length).empty();
        require(sees_none || seen >= kept, HATTN_INVALID_ARGUMENT, "kv_lengths[", b, "]: is ", sequence.kv_length,
                ", of which a ring of ", args.k.extent[2], " keeps keys from ", kept,
                " on, but the first row of q sees keys from ", seen, " on");
    }
}

void check_optional_outputs(const Problem &p, const hattn_attention_args &args) {
    read_struct(&args.lse, "lse");
    if (args.lse.data) {
        check_tensor(args.lse, "lse", HATTN_FLOAT32, p.device);
        for (int d = 0; d < 3; ++d) {
            check_tensor_extent(args.lse, "lse", kQueryDimensions, d, args.q.extent[d], "that of q");
        }
        check_tensor_extent(args.lse, "lse", kQueryDimensions, 3, 1, "the width of lse");
        check_distinct_elements(args.lse, "lse");
        check_stride_limit(args.lse, "lse", 1, kMaxHeadStride);
        check_stride_limit(args.lse, "lse", 2, kMaxRowStride);
    }
    read_struct(&args.scores, "scores");
    const bool wanted = p.scores != HATTN_SCORES_NONE;
    const int64_t keys = key_extent(p, args);
    const bool nothing_to_write = is_empty(args.q) || keys == 0;
    require(wanted || !args.scores.data, HATTN_INVALID_ARGUMENT, "scores: data is given, but the plan's scores is ",
            static_cast<int>(p.scores), " (none)");
    if (wanted) {
        require(args.scores.data || nothing_to_write, HATTN_INVALID_ARGUMENT,
                "scores: data is null, but the plan's scores is ", static_cast<int>(p.scores));
        check_tensor(args.scores, "scores", HATTN_FLOAT32, p.device);
        for (int d = 0; d < 3; ++d) {
            check_tensor_extent(args.scores, "scores", kScoreDimensions, d, args.q.extent[d], "that of q");
        }
        check_tensor_extent(args.scores, "scores", kScoreDimensions, 3, keys,
                            p.scattered() ? "the longest of kv_lengths" : "the kv length of k");
        check_unit_stride(args.scores, "scores");
        check_distinct_elements(args.scores, "scores");
        check_stride_limit(args.scores, "scores", 2, kMaxRowStride);
    }
}

// A bias or mask: each extent is 1 or that of [B, Hq, Sq, Sk]. Packed queries vary over the batch or over rows, and
// packed keys may leave columns unused.
void check_operand(const hattn_tensor &tensor, const char *name, const char *flag, bool expected, hattn_dtype dtype,
                   const Problem &p, const hattn_attention_args &args) {
    read_struct(&tensor, name);
    const int64_t full[4] = {p.batch, args.q.extent[1], args.q.extent[2], key_extent(p, args)};
    const bool empty = full[0] == 0 || full[2] == 0 || full[3] == 0;
    require(expected || !tensor.data, HATTN_INVALID_ARGUMENT, name, ": data is given, but the plan's ", flag, " is 0");
    if (!expected || (empty && !tensor.data)) {
        return;
    }
    require(tensor.data, HATTN_INVALID_ARGUMENT, name, ": data is null, but the plan's ", flag, " is 1");
    check_tensor(tensor, name, dtype, p.device);
    for (int d = 0; d < 4; ++d) {
        const bool unused_columns = d == 3 && args.cu_seqlens_k;
        require(tensor.extent[d] == 1 || tensor.extent[d] == full[d] || (unused_columns && tensor.extent[d] > full[d]),
                HATTN_INVALID_ARGUMENT, name, ": extent[", d, "] (", kScoreDimensions.name[d], ") is ",
                tensor.extent[d], ", but must be ", full[d] == 1 && !unused_columns ? "" : "1 or ",
                unused_columns ? "at least " : "", full[d]);
    }
    require(p.packed_queries == 0 || tensor.extent[0] == 1 || tensor.extent[2] == 1, HATTN_INVALID_ARGUMENT, name,
            ": extent[0] (batch) is ", tensor.extent[0], " and extent[2] (query length) is ", tensor.extent[2],
            ", but one of them must be 1 where queries are packed");
    check_stride_limit(tensor, name, 1, kMaxHeadStride);
    check_stride_limit(tensor, name, 2, kMaxRowStride);
    check_stride_limit(tensor, name, 3, kMaxKeyStride);
}

void check_packing(const Problem &p, const hattn_attention_args &args) {
    require((args.cu_seqlens_q != nullptr) == (p.packed_queries > 0), HATTN_INVALID_ARGUMENT, "cu_seqlens_q: is ",
            args.cu_seqlens_q ? "given" : "null", ", but the plan's packed_queries is ", p.packed_queries);
    require(!args.cu_seqlens_k || args.cu_seqlens_q, HATTN_INVALID_ARGUMENT,
            "cu_seqlens_k: is given, but the plan's packed_queries is ", p.packed_queries);
    require(!args.cu_seqlens_q || !args.q_lengths, HATTN_INVALID_ARGUMENT,
            "q_lengths: is given, but cu_seqlens_q is too");
    require(!args.cu_seqlens_k || !args.block_table, HATTN_INVALID_ARGUMENT,
            "block_table: is given, but cu_seqlens_k is too");
    require(!args.cu_seqlens_k || !args.kv_lengths, HATTN_INVALID_ARGUMENT,
            "kv_lengths: is given, but cu_seqlens_k is too");
}

void check_vectors(const Problem &p, const hattn_attention_args &args) {
    require(!args.alibi_slopes == !p.has_alibi, HATTN_INVALID_ARGUMENT, "alibi_slopes: is ",
            args.alibi_slopes ? "given" : "null", ", but the plan's has_alibi is ", p.has_alibi ? 1 : 0);
    require(!args.sinks == !p.has_sinks, HATTN_INVALID_ARGUMENT, "sinks: is ", args.sinks ? "given" : "null",
            ", but the plan's has_sinks is ", p.has_sinks ? 1 : 0);
    for (int64_t b = 0; b < p.batch; ++b) {
        if (args.q_lengths) {
            require(args.q_lengths[b] >= 0 && args.q_lengths[b] <= args.q.extent[2], HATTN_INVALID_ARGUMENT,
                    "q_lengths[", b, "]: is ", args.q_lengths[b], ", but must be from 0 to the query length of q, ",
                    args.q.extent[2]);
        }
        if (args.causal_offsets) {
            require(std::llabs(args.causal_offsets[b]) <= kMaxExtent, HATTN_INVALID_ARGUMENT, "causal_offsets[", b,
                    "]: is ", args.causal_offsets[b], ", but must be from ", -kMaxExtent, " to ", kMaxExtent);
        }
    }
}

void check_kv_lengths(const Problem &p, const hattn_attention_args &args) {
    require(args.kv_lengths || !p.scattered() || p.batch == 0, HATTN_INVALID_ARGUMENT,
            "kv_lengths: is null, but must be given with ", p.ring ? "a ring" : "a block_table");
    const int64_t most = p.page_size > 0 ? p.kv_length : p.ring ? kMaxExtent : args.k.extent[2];
    const char *limit = p.page_size > 0 ? "the plan's kv_length" : p.ring ? "the largest" : "the kv length of k";
    for (int64_t b = 0; b < p.batch && args.kv_lengths; ++b) {
        const int32_t length = args.kv_lengths[b];
        const hattn_status status = p.page_size > 0 && length > most ? HATTN_CAPACITY_EXCEEDED : HATTN_INVALID_ARGUMENT;
        require(length >= 0 && length <= most, status, "kv_lengths[", b, "]: is ", length, ", but must be from 0 to ",
                limit, ", ", most);
    }
}

void check_aliasing(const hattn_attention_args &args, const hattn_tensor &output, const char *name) {
    const ByteRange range = byte_range(output);
    for (const NamedTensor &other : tensors_of(args)) {
        if (&other.tensor != &output) {
            require(!overlaps(range, byte_range(other.tensor)), HATTN_INVALID_ARGUMENT, name, ": its memory, from ",
                    output.data, ", overlaps that of ", other.name, ", from ", other.tensor.data);
        }
    }
}

constexpr std::string_view kKeyTensors[] = {"k", "v", "k_scale", "v_scale"};

// All are where q is: on the host, or on the plan's device, where keys and their scales may be as well.
void check_placement(const Problem &p, const hattn_attention_args &args) {
    for (const auto &[tensor, name] : tensors_of(args)) {
        if (!tensor.data) {
            continue;
        }
        const bool is_keys = std::ranges::find(kKeyTensors, name) != std::end(kKeyTensors);
        require(tensor.device == args.q.device || (is_keys && args.q.device == HATTN_CPU), HATTN_INVALID_ARGUMENT, name,
                ": device is ", static_cast<int>(tensor.device), " (", device_name(tensor.device),
                "), but that of q is ", static_cast<int>(args.q.device), " (", device_name(args.q.device),
                "): an execute takes all tensors from the host or all from the device");
        require(tensor.device == HATTN_CPU || tensor.device_id == p.device_id, HATTN_INVALID_ARGUMENT, name,
                ": device_id is ", tensor.device_id, ", but the plan's device_id is ", p.device_id);
    }
    require(!args.queue || p.device != HATTN_CPU, HATTN_INVALID_ARGUMENT, "queue: is given, but the plan's device is ",
            static_cast<int>(p.device), " (", device_name(p.device), ")");
    require(!args.device_workspace || p.device != HATTN_CPU, HATTN_INVALID_ARGUMENT,
            "device_workspace: is given, but the plan's device is ", static_cast<int>(p.device), " (",
            device_name(p.device), ")");
}

}  // namespace

std::array<NamedTensor, 10> tensors_of(const hattn_attention_args &args) {
    return {{{args.out, "out"},
             {args.lse, "lse"},
             {args.scores, "scores"},
             {args.q, "q"},
             {args.k, "k"},
             {args.v, "v"},
             {args.bias, "bias"},
             {args.mask, "mask"},
             {args.k_scale, "k_scale"},
             {args.v_scale, "v_scale"}}};
}

void check_arguments(const Problem &problem, const hattn_attention_args &args) {
    check_packing(problem, args);
    check_query_side(problem, args);
    check_key_side(problem, args);
    check_scale(problem, args.k_scale, "k_scale", args.k, "k");
    check_scale(problem, args.v_scale, "v_scale", args.v, "v");
    if (args.cu_seqlens_q) {
        check_ends(args.cu_seqlens_q, "cu_seqlens_q", problem.batch, args.q.extent[2], "q",
                   {problem.query_length, "the plan's query_length"});
    }
    if (args.cu_seqlens_k) {
        check_ends(args.cu_seqlens_k, "cu_seqlens_k", problem.batch, args.k.extent[2], "k",
                   {problem.kv_length, "the plan's kv_length"});
    }
    check_kv_lengths(problem, args);
    check_block_table(problem, args);
    check_optional_outputs(problem, args);
    check_operand(args.bias, "bias", "has_bias", problem.has_bias, HATTN_FLOAT32, problem, args);
    check_operand(args.mask, "mask", "has_mask", problem.has_mask, HATTN_BOOL, problem, args);
    check_vectors(problem, args);
    check_ring(problem, args);
    check_placement(problem, args);
    check_aliasing(args, args.out, "out");
    check_aliasing(args, args.lse, "lse");
    check_aliasing(args, args.scores, "scores");
}

int64_t most_heads_per_call(const hattn_attention_args &args) {
    const auto is_far = [](const hattn_tensor *tensor) {
        return tensor->data && tensor->extent[1] > 1 && std::llabs(tensor->stride[1]) > kShortHeadStride;
    };
    const hattn_tensor *const with_heads[] = {&args.q, &args.out, &args.lse, &args.bias, &args.mask};
    return std::ranges::any_of(with_heads, is_far) ? kMostFarHeads : kMaxTileHeads;
}

int64_t rows_per_call(const hattn_attention_args &args, int64_t rows) {
    if (rows <= kMostFarRows) {
        return rows;
    }
    const auto is_far = [](const hattn_tensor *tensor) {
        return tensor->data && std::llabs(used_stride(*tensor, 2)) > kMaxRowStride / 2;
    };
    const hattn_tensor *const with_rows[] = {&args.q, &args.out, &args.lse, &args.bias, &args.mask};
    return std::ranges::any_of(with_rows, is_far) ? kMostFarRows : std::min(rows, 2 * kMostFarRows);
}

hattn_attention_args with_used_strides(hattn_attention_args args) {
    for (hattn_tensor *tensor : {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.scores, &args.bias, &args.mask,
                                 &args.k_scale, &args.v_scale}) {
        for (int d = 0; d < 4; ++d) {
            const bool is_small = tensor->stride[d] >= -kMaxRowStride && tensor->stride[d] <= kMaxRowStride;
            tensor->stride[d] = is_small ? tensor->stride[d] : used_stride(*tensor, d);
        }
    }
    return args;
}

}  // namespace hattn

void hattn_attention_args_init(hattn_attention_args *args) {
    if (!args) {
        return;
    }
    *args = {};
    args->struct_size = sizeof(*args);
    const hattn_tensor empty = HATTN_TENSOR_INIT;
    for (hattn_tensor *tensor : {&args->q, &args->k, &args->v, &args->out, &args->lse, &args->scores, &args->bias,
                                 &args->mask, &args->k_scale, &args->v_scale}) {
        *tensor = empty;
    }
}
