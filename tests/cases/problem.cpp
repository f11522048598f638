#include "problem.h"

#include "input_data.h"

namespace hattn::cases {

namespace {

constexpr std::array<int, 4> kBhsdOrder = {0, 1, 2, 3};
constexpr std::array<int, 4> kBshdOrder = {0, 2, 1, 3};

// A view of the first head or sequence, repeated.
TensorData shared(hattn_dtype dtype, Extents extents, int dim) {
    Extents stored = extents;
    stored[static_cast<size_t>(dim)] = extents[static_cast<size_t>(dim)] > 0 ? 1 : 0;
    TensorData tensor = make_tensor(dtype, stored);
    tensor.view.extent[dim] = extents[static_cast<size_t>(dim)];
    tensor.view.stride[dim] = 0;
    return tensor;
}

TensorData laid_out(Layout layout, const Extents &extents) {
    switch (layout) {
    case Layout::kBshd:
    case Layout::kPackedQkv:
        return make_tensor(HATTN_FLOAT32, extents, kBshdOrder);
    case Layout::kPadded:
        return make_tensor(HATTN_FLOAT32, extents, kBhsdOrder, {3, 5, 7, 1});
    case Layout::kEveryOther:
        return make_tensor(HATTN_FLOAT32, extents, kBhsdOrder, {extents[3], 0, 0, 0});
    default:
        return make_tensor(HATTN_FLOAT32, extents, kBhsdOrder);
    }
}

TensorData keys_or_values(Layout layout, const Extents &extents) {
    if (layout == Layout::kSharedKv) {
        return shared(HATTN_FLOAT32, extents, 0);
    }
    if (layout == Layout::kSharedHead) {
        return shared(HATTN_FLOAT32, extents, 1);
    }
    return laid_out(layout, extents);
}

// A broadcast dimension gets a stride that would be noticed if it were used.
TensorData operand_tensor(hattn_dtype dtype, const Operand &operand, const Extents &full) {
    constexpr int64_t kUnusableStride = int64_t{1} << 40;
    Extents extents{};
    for (size_t dim = 0; dim < 4; ++dim) {
        extents[dim] = operand.varies[dim] ? full[dim] : 1;
    }
    TensorData tensor = make_tensor(dtype, extents);
    for (int dim = 0; dim < 4; ++dim) {
        if (!operand.varies[static_cast<size_t>(dim)]) {
            tensor.view.stride[dim] = kUnusableStride;
        }
    }
    return tensor;
}

const int32_t *pointer(const std::vector<int32_t> &values) {
    return values.empty() ? nullptr : values.data();
}

const float *pointer(const std::vector<float> &values) {
    return values.empty() ? nullptr : values.data();
}

}  // namespace

hattn_attention_desc desc_of(const Case &c) {
    hattn_attention_desc desc;
    hattn_attention_desc_init(&desc);
    desc.batch = c.batch;
    desc.query_heads = c.query_heads;
    desc.kv_heads = c.kv_heads;
    desc.query_length = c.query_length;
    desc.kv_length = c.kv_length;
    desc.key_dim = c.key_dim;
    desc.value_dim = c.value_dim;
    desc.scale = c.scale;
    desc.causal = c.causal ? 1 : 0;
    desc.window_left = c.window_left;
    desc.window_right = c.window_right;
    desc.softcap = c.softcap;
    desc.has_bias = c.bias.given ? 1 : 0;
    desc.has_mask = c.mask.given ? 1 : 0;
    desc.has_alibi = c.alibi ? 1 : 0;
    desc.has_sinks = c.sinks != Sinks::kNone ? 1 : 0;
    desc.scores = c.scores;
    return desc;
}

Problem::Problem(const Case &c) : spec(c) {
    if (spec.layout == Layout::kPackedQkv) {
        make_packed_inputs();
    } else {
        make_inputs();
    }
    make_outputs();
    desc = desc_of(spec);
    fill_inputs();
    fill_operands();
    bind();
    poison_hidden();
    fill_outputs();
}

void Problem::make_inputs() {
    q = laid_out(spec.layout, {spec.batch, spec.query_heads, spec.query_length, spec.key_dim});
    k = keys_or_values(spec.layout, {spec.batch, spec.kv_heads, spec.kv_length, spec.key_dim});
    v = keys_or_values(spec.layout, {spec.batch, spec.kv_heads, spec.kv_length, spec.value_dim});
}

void Problem::make_packed_inputs() {
    int64_t heads = spec.query_heads + 2 * spec.kv_heads;
    TensorData packed = make_tensor(HATTN_FLOAT32, {spec.batch, heads, spec.query_length, spec.key_dim}, kBshdOrder);
    q = k = v = packed;
    q.view.extent[1] = spec.query_heads;
    k.view.extent[1] = v.view.extent[1] = spec.kv_heads;
    k.view.data = packed.floats() + spec.query_heads * spec.key_dim;
    v.view.data = packed.floats() + (spec.query_heads + spec.kv_heads) * spec.key_dim;
}

void Problem::make_outputs() {
    out = laid_out(spec.layout, {spec.batch, spec.query_heads, spec.query_length, spec.value_dim});
    bool dense = spec.layout == Layout::kBhsd;
    if (spec.lse) {
        // In the strided layouts consecutive rows are Hq apart, which the interface allows for lse.
        lse = make_tensor(HATTN_FLOAT32, {spec.batch, spec.query_heads, spec.query_length, 1},
                          dense ? kBhsdOrder : kBshdOrder);
    }
    if (spec.scores != HATTN_SCORES_NONE) {
        scores = laid_out(spec.layout, {spec.batch, spec.query_heads, spec.query_length, spec.kv_length});
    }
}

void Problem::fill_inputs() {
    fill_queries_keys_values(spec, q.view, k.view, v.view);
}

void Problem::fill_operands() {
    const Extents full = {spec.batch, spec.query_heads, spec.query_length, spec.kv_length};
    if (spec.bias.given) {
        bias = operand_tensor(HATTN_FLOAT32, spec.bias, full);
        fill_bias(spec, bias.view);
    }
    if (spec.mask.given) {
        mask = operand_tensor(HATTN_BOOL, spec.mask, full);
        fill_mask(spec, mask.view);
    }
    alibi_slopes = make_alibi_slopes(spec);
    sinks = make_sinks(spec);
}

void Problem::bind() {
    hattn_attention_args_init(&args);
    args.q = q.view;
    args.k = k.view;
    args.v = v.view;
    args.out = out.view;
    args.lse = lse.view;
    args.scores = scores.view;
    args.bias = bias.view;
    args.mask = mask.view;
    args.alibi_slopes = pointer(alibi_slopes);
    args.sinks = pointer(sinks);
    args.q_lengths = pointer(spec.q_lengths);
    args.kv_lengths = pointer(spec.kv_lengths);
    args.causal_offsets = pointer(spec.causal_offsets);
}

void Problem::poison_hidden() {
    if (spec.data == Data::kPoisonHidden || spec.data == Data::kPoisonPartlySeen) {
        poison(spec, desc, args);
    }
}

void Problem::fill_outputs() {
    for (TensorData *tensor : {&out, &lse, &scores}) {
        if (tensor->given()) {
            fill_bytes(*tensor, kOutputFill);
        }
    }
}

bool Problem::output_gaps_hold() const {
    for (const TensorData *tensor : {&out, &lse, &scores}) {
        if (tensor->given() && !gaps_hold(*tensor, kOutputFill)) {
            return false;
        }
    }
    return true;
}

bool Problem::outputs_untouched() const {
    for (const TensorData *tensor : {&out, &lse, &scores}) {
        if (tensor->given() && !all_bytes_hold(*tensor, kOutputFill)) {
            return false;
        }
    }
    return true;
}

}  // namespace hattn::cases
