#include "typed_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "number_formats.h"
#include "planes.h"

namespace hattn::cases {

namespace {

constexpr int64_t kScaleBlock = 32;

bool is_quantized(hattn_dtype type) {
    return type == HATTN_INT8 || type == HATTN_INT4;
}

constexpr unsigned char kUnwritten = 0xff;  // bytes that floats of any type read as NaN

// The same extents and strides in another type, in memory that holds what the type reads as NaN.
TensorData like(const hattn_tensor &tensor, hattn_dtype type) {
    int64_t span = 1;
    for (int d = 0; d < 4; ++d) {
        span += std::max<int64_t>(tensor.extent[d] - 1, 0) * tensor.stride[d];
    }
    TensorData copy = make_tensor(type, {1, 1, 1, span});
    fill_bytes(copy, kUnwritten);
    std::copy(tensor.extent, tensor.extent + 4, copy.view.extent);
    std::copy(tensor.stride, tensor.stride + 4, copy.view.stride);
    return copy;
}

template<typename Visit>
void for_each_element(const hattn_tensor &tensor, Visit visit) {
    for_each_index(extents_of(tensor), visit);
}

// Rounds a tensor of the twin in place, and gives it in its type.
TensorData narrowed(const hattn_tensor &tensor, hattn_dtype type) {
    TensorData copy = like(tensor, type);
    const auto narrow = [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        float &value = element<float>(tensor, b, h, s, d);
        if (type == HATTN_FLOAT32) {
            element<float>(copy.view, b, h, s, d) = value;
            return;
        }
        const uint16_t bits = encode(type, static_cast<double>(value));
        element<uint16_t>(copy.view, b, h, s, d) = bits;
        value = static_cast<float>(decode(type, bits));
    };
    for_each_plane(tensor, [&](int64_t, int64_t, const auto &for_each_element) { for_each_element(narrow); });
    return copy;
}

double largest_magnitude(const hattn_tensor &tensor) {
    double most = 0.0;
    for_each_element(tensor, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        const double size = std::fabs(static_cast<double>(element<float>(tensor, b, h, s, d)));
        most = std::isfinite(size) ? std::max(most, size) : most;
    });
    return most;
}

TensorData make_scales(const hattn_tensor &side, ScaleKind kind) {
    const int64_t blocks = (side.extent[3] + kScaleBlock - 1) / kScaleBlock;
    switch (kind) {
    case ScaleKind::kTensor:
        return make_tensor(HATTN_FLOAT32, {1, 1, 1, 1});
    case ScaleKind::kHead:
        return make_tensor(HATTN_FLOAT32, {1, side.extent[1], 1, 1});
    case ScaleKind::kChannel:
        return make_tensor(HATTN_FLOAT32, {1, side.extent[1], 1, side.extent[3]});
    case ScaleKind::kKey:
        break;
    }
    // Strides of their own, with gaps.
    return make_tensor(HATTN_FLOAT32, {side.extent[0], side.extent[1], side.extent[2], blocks}, {0, 2, 1, 3},
                       {3, 2, 1, 0});
}

float &scale_of(const hattn_tensor &scales, int64_t b, int64_t h, int64_t s, int64_t d, int64_t dim) {
    const int64_t last = scales.extent[3] == dim ? d : scales.extent[3] == 1 ? 0 : d / kScaleBlock;
    return element<float>(scales, scales.extent[0] > 1 ? b : 0, scales.extent[1] > 1 ? h : 0,
                          scales.extent[2] > 1 ? s : 0, last);
}

// Small odd multiples of a power of two: products with the integers are exact in float32.
void fill_scales(const hattn_tensor &scales, double largest_element, double limit) {
    const double unit =
        std::ldexp(1.0, static_cast<int>(std::ceil(std::log2(std::max(largest_element, 1e-30) / limit))));
    int64_t count = 0;
    for_each_element(scales, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        element<float>(scales, b, h, s, d) = static_cast<float>(unit * (1.0 + 0.25 * static_cast<double>(count++ % 4)));
    });
}

// Of the largest scale to the smallest.
double ratio_of(const hattn_tensor &scales) {
    double most = 0.0, least = std::numeric_limits<double>::infinity();
    for_each_element(scales, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        const double size = std::fabs(static_cast<double>(element<float>(scales, b, h, s, d)));
        if (std::isfinite(size) && size > 0.0) {
            most = std::max(most, size);
            least = std::min(least, size);
        }
    });
    return most > 0.0 ? most / least : 1.0;
}

TensorData make_integers(const hattn_tensor &side, hattn_dtype type) {
    return type == HATTN_INT8 ? like(side, type) : make_int4_tensor(extents_of(side));
}

void put_integer(const hattn_tensor &integers, int64_t b, int64_t h, int64_t s, int64_t d, int value) {
    const int64_t offset = element_offset(integers, b, h, s, d);
    auto *bytes = static_cast<uint8_t *>(integers.data);
    if (integers.dtype == HATTN_INT8) {
        bytes[offset] = static_cast<uint8_t>(value);
        return;
    }
    const int shift = offset % 2 == 0 ? 0 : 4;
    uint8_t &byte = bytes[offset / 2];
    byte = static_cast<uint8_t>((byte & ~(15 << shift)) | ((value & 15) << shift));
}

// Quantises a tensor of the twin in place, and gives integers and scales. Where the scales are the keys' own, they
// carry its NaN; integers have none.
TensorData quantized(const hattn_tensor &side, hattn_dtype type, ScaleKind kind, TensorData &scales) {
    const double limit = type == HATTN_INT8 ? 127.0 : 7.0;
    TensorData integers = make_integers(side, type);
    scales = make_scales(side, kind);
    fill_scales(scales.view, largest_magnitude(side), limit);
    const int64_t dim = side.extent[3];
    if (kind == ScaleKind::kKey) {
        for_each_element(side, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
            if (!std::isfinite(element<float>(side, b, h, s, d))) {
                scale_of(scales.view, b, h, s, d, dim) = std::numeric_limits<float>::quiet_NaN();
            }
        });
    }
    TensorData source = narrowed(side, HATTN_FLOAT32);  // broadcast elements are visited more than once
    for_each_element(side, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        const auto value = static_cast<double>(element<float>(source.view, b, h, s, d));
        const auto scale = static_cast<double>(scale_of(scales.view, b, h, s, d, dim));
        const double ratio = std::isfinite(value) && std::isfinite(scale) ? std::nearbyint(value / scale) : limit;
        const double integer = std::clamp(ratio, -limit, limit);
        put_integer(integers.view, b, h, s, d, static_cast<int>(integer));
        element<float>(side, b, h, s, d) = static_cast<float>(integer * scale);
    });
    return integers;
}

TensorData stored(const hattn_tensor &side, hattn_dtype type, ScaleKind kind, TensorData &scales) {
    return is_quantized(type) ? quantized(side, type, kind, scales) : narrowed(side, type);
}

// Layouts that share memory between heads or batch entries would let elements have several scales.
Case with_own_storage(Case c, const StoredTypes &types) {
    const bool shared =
        c.layout == Layout::kSharedKv || c.layout == Layout::kSharedHead || c.layout == Layout::kPackedQkv;
    if (shared && (is_quantized(types.k) || is_quantized(types.v) || types.q != types.k || types.k != types.v)) {
        c.layout = Layout::kBhsd;
    }
    return c;
}

// sum_j p_j |v_j| is what attention over the magnitudes of the values gives.
void add_weight_rounding(const hattn_attention_desc &desc, const hattn_attention_args &args, double weight_roundoff,
                         Expected &expected) {
    TensorData magnitudes = narrowed(args.v, HATTN_FLOAT32);
    for_each_element(args.v, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        element<float>(magnitudes.view, b, h, s, d) = std::fabs(element<float>(args.v, b, h, s, d));
    });
    hattn_attention_args of_magnitudes = args;
    of_magnitudes.v = magnitudes.view;
    const Expected weighted = evaluate(desc, of_magnitudes);
    for (size_t i = 0; i < expected.out.size(); ++i) {
        expected.out_bound[i] += weight_roundoff * weighted.out[i];
    }
}

// Queries, keys and the output are float16 or bfloat16, values of 16 bits or fewer.
bool may_have_two_terms(const hattn_attention_args &args) {
    const auto is_half = [](const hattn_tensor &tensor) {
        return tensor.dtype == HATTN_FLOAT16 || tensor.dtype == HATTN_BFLOAT16;
    };
    return is_half(args.q) && is_half(args.k) && is_half(args.out) && args.v.dtype != HATTN_FLOAT32;
}

}  // namespace

Expected evaluate(const hattn_attention_desc &desc, const hattn_attention_args &args, const Rounding &rounding) {
    Expected expected = evaluate(desc, args, rounding.integers);
    if (rounding.weights != HATTN_FLOAT32) {
        add_weight_rounding(desc, args, roundoff(rounding.weights), expected);
    } else if (rounding.two_terms) {
        add_weight_rounding(desc, args, kTwoTerms, expected);
    }
    for (size_t i = 0; i < expected.out.size(); ++i) {
        double &value = expected.out[i], &bound = expected.out_bound[i];
        const double most = std::fabs(value) + bound;
        bound += roundoff(rounding.out) * most + smallest_step(rounding.out);
        if (most > largest(rounding.out)) {
            value = std::numeric_limits<double>::quiet_NaN();  // finite or infinite
        }
    }
    return expected;
}

TypedProblem::TypedProblem(const Case &c, const StoredTypes &types) : twin(with_own_storage(c, types)) {
    q = narrowed(twin.q.view, types.q);
    k = stored(twin.k.view, types.k, types.k_scales, k_scale);
    v = stored(twin.v.view, types.v, types.v_scales, v_scale);
    out = like(twin.out.view, types.out);
    desc = twin.desc;
    desc.dtype = types.q;
    desc.k_dtype = types.k;
    desc.v_dtype = types.v;
    desc.out_dtype = types.out;
    args = twin.args;
    args.q = q.view;
    args.k = k.view;
    args.v = v.view;
    args.out = out.view;
    if (k_scale.given()) {
        args.k_scale = k_scale.view;
    }
    if (v_scale.given()) {
        args.v_scale = v_scale.view;
    }
    if (types.out != HATTN_FLOAT32 || is_quantized(types.v)) {
        twin.spec.tolerance = Tolerance::kRounding;
    }
}

IntegerProducts integer_products(std::string_view name, hattn_dtype k, hattn_dtype v) {
    const auto is_of = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (k != v || (k != HATTN_INT8 && k != HATTN_INT4) || is_of("generic")) {
        return IntegerProducts::kNone;
    }
    return is_of("int8_split_kv_x86_avx2_r1k") ? IntegerProducts::kScores : IntegerProducts::kBoth;
}

Rounding TypedProblem::rounding(hattn_dtype weight_type, IntegerProducts integers, bool two_terms) const {
    Rounding rounding{args.out.dtype, weight_type, {}, two_terms && may_have_two_terms(args)};
    if (integers == IntegerProducts::kNone) {
        return rounding;
    }
    const bool of_channels = k_scale.given() && k_scale.view.extent[3] == desc.key_dim;
    const double key_ratio = of_channels ? ratio_of(k_scale.view) : 1.0;
    if (integers == IntegerProducts::kScores) {
        rounding.integers.keys = key_ratio;
    } else {
        const int64_t *values = v_scale.view.extent;  // per channel, one key has as many as several
        const bool of_blocks = v_scale.given() && values[3] < desc.value_dim && values[2] * values[3] > 1;
        constexpr int64_t kLine = 128;
        constexpr double kUnitOfLines = 32767.0 / 32639.0;
        const bool of_int4 = args.k.dtype == HATTN_INT4;
        const auto fills = [&](int64_t dim) { return of_int4 ? dim % kLine == 0 : dim == kLine; };
        const bool lines = fills(desc.key_dim) && fills(desc.value_dim);
        const double unit = lines ? kUnitOfLines : 1.0;
        rounding.integers = {unit * key_ratio, unit * (of_blocks ? ratio_of(v_scale.view) : 1.0)};
    }
    return rounding;
}

Expected TypedProblem::evaluate(hattn_dtype weight_type, IntegerProducts integers, bool two_terms) const {
    return cases::evaluate(twin.desc, twin.args, rounding(weight_type, integers, two_terms));
}

void TypedProblem::fill_outputs() {
    twin.fill_outputs();
    fill_bytes(out, kUnwritten);
}

void TypedProblem::read_output() {
    for_each_element(args.out, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        float &value = element<float>(twin.out.view, b, h, s, d);
        value = args.out.dtype == HATTN_FLOAT32
                    ? element<float>(args.out, b, h, s, d)
                    : static_cast<float>(decode(args.out.dtype, element<uint16_t>(args.out, b, h, s, d)));
    });
}

}  // namespace hattn::cases
