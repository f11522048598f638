#include "compared_problem.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "number_formats.h"
#include "random.h"

namespace hattn::bench {

namespace {

bool is_half(hattn_dtype type) {
    return type == HATTN_FLOAT16 || type == HATTN_BFLOAT16;
}

// The outermost dimension in memory first.
std::array<int, 4> order_of(const hattn_tensor &tensor) {
    std::array<int, 4> order = {0, 1, 2, 3};
    std::ranges::stable_sort(order, std::ranges::greater(), [&](int d) { return tensor.stride[d]; });
    return order;
}

// Integers of any size do: time does not depend on them.
cases::TensorData in_type(const hattn_tensor &floats, hattn_dtype type, uint64_t seed) {
    const cases::Extents extents = cases::extents_of(floats);
    cases::TensorData made = type == HATTN_INT4 ? cases::make_int4_tensor(extents, order_of(floats))
                                                : cases::make_tensor(type, extents, order_of(floats));
    if (is_half(type)) {
        cases::for_each_index(extents, [&](int64_t b, int64_t h, int64_t s, int64_t d) {
            cases::element<uint16_t>(made.view, b, h, s, d) =
                cases::encode(type, cases::element<float>(floats, b, h, s, d));
        });
        return made;
    }
    cases::Random random(seed);
    std::generate_n(made.storage->data(), made.storage->size(),
                    [&] { return static_cast<std::byte>(random.bits() & 0xff); });
    return made;
}

cases::TensorData scales_of(const hattn_tensor &side, Scales which) {
    constexpr int64_t kBlock = 32;
    constexpr float kScale = 1.0f / 64;
    const int64_t blocks = (side.extent[3] + kBlock - 1) / kBlock;
    const cases::Extents of_keys = {side.extent[0], side.extent[1], side.extent[2], blocks};
    const cases::Extents of_heads = {1, side.extent[1], 1, 1};
    cases::TensorData scales =
        cases::make_tensor(HATTN_FLOAT32, which == Scales::kKeys ? of_keys : of_heads, order_of(side));
    std::fill_n(scales.floats(), cases::element_count(scales.view), kScale);
    return scales;
}

}  // namespace

ComparedProblem::ComparedProblem(const cases::Case &c, hattn_dtype keys, Scales scales)
    : floats(c), desc(floats.desc), args(floats.args) {
    if (keys == HATTN_FLOAT32) {
        return;
    }
    desc.k_dtype = desc.v_dtype = keys;
    args.k = keep(in_type(floats.args.k, keys, 1));
    args.v = keep(in_type(floats.args.v, keys, 2));
    if (is_half(keys)) {
        desc.dtype = desc.out_dtype = keys;
        args.q = keep(in_type(floats.args.q, keys, 3));
        args.out = keep(in_type(floats.args.out, keys, 4));
        return;
    }
    args.k_scale = keep(scales_of(floats.args.k, scales));
    args.v_scale = keep(scales_of(floats.args.v, scales));
}

std::vector<double> ComparedProblem::output() const {
    std::vector<double> values;
    cases::for_each_index(cases::extents_of(args.out), [&](int64_t b, int64_t h, int64_t s, int64_t d) {
        values.push_back(args.out.dtype == HATTN_FLOAT32
                             ? cases::element<float>(args.out, b, h, s, d)
                             : cases::decode(args.out.dtype, cases::element<uint16_t>(args.out, b, h, s, d)));
    });
    return values;
}

const hattn_tensor &ComparedProblem::keep(cases::TensorData tensor) {
    return stored.emplace_back(std::move(tensor)).view;
}

}  // namespace hattn::bench
