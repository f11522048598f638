#include "input_data.h"

#include <algorithm>
#include <limits>

#include "oracle.h"
#include "planes.h"
#include "random.h"

namespace hattn::cases {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// value(random, i0, i1, i2, i3) for every element, in logical order.
template<typename T, typename Value>
void fill(const hattn_tensor &tensor, uint64_t seed, Value value) {
    Random random(seed);
    for_each_index(extents_of(tensor), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        element<T>(tensor, i0, i1, i2, i3) = value(random, i0, i1, i2, i3);
    });
}

void scale_elements(const hattn_tensor &tensor, float factor) {
    for_each_index(extents_of(tensor), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        element<float>(tensor, i0, i1, i2, i3) *= factor;
    });
}

void fill_small_integers(const hattn_tensor &tensor, uint64_t seed) {
    fill<float>(tensor, seed, [](Random &random, int64_t, int64_t, int64_t, int64_t) {
        return static_cast<float>(random.integer(-8, 8));
    });
}

// Only the first element of a head counts, so that the score does not depend on the order of summation.
void fill_equal_logits(const hattn_tensor &q, const hattn_tensor &k) {
    fill<float>(q, 0, [](Random &, int64_t, int64_t, int64_t row, int64_t d) {
        return d == 0 ? 1e4f * static_cast<float>(1 + row % 3) : 0.0f;
    });
    fill<float>(k, 0, [](Random &, int64_t, int64_t, int64_t, int64_t d) { return d == 0 ? 1.0f : 0.25f; });
}

void fill_one_sign(const hattn_tensor &q, const hattn_tensor &k) {
    const auto keys = static_cast<float>(std::max<int64_t>(k.extent[2], 1));
    fill<float>(q, 0, [](Random &, int64_t, int64_t, int64_t, int64_t) { return 1.0f; });
    fill<float>(k, 0, [&](Random &, int64_t, int64_t, int64_t j, int64_t) {
        return 1.0f - 0.25f * static_cast<float>(j) / keys;
    });
}

// By slope * sqrt(D) from the first key to the last.
void fill_rising_logits(const hattn_tensor &q, const hattn_tensor &k, float slope) {
    auto keys = static_cast<float>(std::max<int64_t>(k.extent[2], 1));
    auto direction = [](int64_t d) { return d % 2 == 0 ? 1.0f : -1.0f; };
    fill<float>(q, 1, [&](Random &random, int64_t, int64_t, int64_t, int64_t d) {
        return direction(d) + 0.1f * random.normal();
    });
    fill<float>(k, 2, [&](Random &random, int64_t, int64_t, int64_t j, int64_t d) {
        return direction(d) * slope * static_cast<float>(j) / keys + 0.01f * random.normal();
    });
}

void fill_normal_within(const std::vector<int32_t> &lengths, const hattn_tensor &tensor, uint64_t seed) {
    for (int64_t b = 0; b < tensor.extent[0]; ++b) {
        hattn_tensor sequence = tensor;
        sequence.data = &element<float>(tensor, b, 0, 0, 0);
        sequence.extent[0] = 1;
        sequence.extent[2] = lengths[static_cast<size_t>(b)];
        fill_normal(sequence, seed + 10 * static_cast<uint64_t>(b));
    }
}

}  // namespace

void fill_normal(const hattn_tensor &tensor, uint64_t seed) {
    const auto plane = static_cast<uint64_t>(tensor.extent[2] * tensor.extent[3]);
    for_each_plane(tensor, [&](int64_t i0, int64_t i1, const auto &for_each_element) {
        Random random(seed);
        random.skip(static_cast<uint64_t>(i0 * tensor.extent[1] + i1) * plane * Random::kBitsOfNormal);
        for_each_element(
            [&](int64_t b, int64_t h, int64_t s, int64_t d) { element<float>(tensor, b, h, s, d) = random.normal(); });
    });
}

void fill_queries_keys_values(const Case &c, const hattn_tensor &q, const hattn_tensor &k, const hattn_tensor &v) {
    constexpr float kExtremeFactor = 60.0f;  // scores are standard normal without it, 3600 times that with it
    fill_normal(q, c.seed());
    if (c.data == Data::kWithinLengths) {
        fill_normal_within(c.kv_lengths, k, c.seed() + 1);
        fill_normal_within(c.kv_lengths, v, c.seed() + 2);
        return;
    }
    fill_normal(k, c.seed() + 1);
    fill_normal(v, c.seed() + 2);
    switch (c.data) {
    case Data::kExtremeLogits:
        scale_elements(q, kExtremeFactor);
        scale_elements(k, kExtremeFactor);
        break;
    case Data::kZeroQueries:
        scale_elements(q, 0.0f);
        fill_small_integers(v, c.seed() + 2);
        break;
    case Data::kEqualLogits:
        fill_equal_logits(q, k);
        fill_small_integers(v, c.seed() + 2);
        break;
    case Data::kRisingLogits:
        fill_rising_logits(q, k, 8.0f);
        break;
    case Data::kSlowlyRising:
        fill_rising_logits(q, k, 2.0f);
        break;
    case Data::kOneSign:
        fill_one_sign(q, k);
        break;
    default:
        break;
    }
}

void fill_bias(const Case &c, const hattn_tensor &bias) {
    constexpr float kExtreme = 1e4f;
    BiasValues kind = c.bias_values;
    fill<float>(bias, c.seed() + 3, [kind](Random &random, int64_t, int64_t, int64_t row, int64_t key) {
        float value = random.normal();
        bool third = random.chance(1.0 / 3.0);
        switch (kind) {
        case BiasValues::kExtreme:
            return kExtreme * value;
        case BiasValues::kSomeNegativeInf:
            return third ? -kInf : value;
        case BiasValues::kNegativeInfRows:
            return row % 3 == 0 ? -kInf : value;
        case BiasValues::kSomeLowest:
            return third && key > 0 ? kLowest : value;
        default:
            return value;
        }
    });
}

namespace {

// In a heap, where the parent of node i is node (i - 1) / 2.
bool is_self_or_ancestor(int64_t node, int64_t of) {
    while (of > node) {
        of = (of - 1) / 2;
    }
    return of == node;
}

}  // namespace

void fill_mask(const Case &c, const hattn_tensor &mask) {
    MaskValues kind = c.mask_values;
    int64_t rows = mask.extent[2], keys = mask.extent[3];
    fill<uint8_t>(mask, c.seed() + 4, [kind, rows, keys](Random &random, int64_t, int64_t, int64_t row, int64_t key) {
        constexpr uint8_t kTrue[] = {1, 2, 0x80, 0xff};  // any byte but zero is true
        uint8_t visible = kTrue[random.integer(0, 3)];
        bool hidden = random.chance(0.3);
        switch (kind) {
        case MaskValues::kEmptyRows:
            hidden = hidden || row % 3 == 1;
            break;
        case MaskValues::kAllHidden:
            hidden = true;
            break;
        case MaskValues::kAllVisible:
            hidden = false;
            break;
        case MaskValues::kHiddenKeys:
            hidden = key % 4 == 2 || key + 5 >= keys;
            break;
        case MaskValues::kHiddenRange:
            hidden = key >= keys / 4 && key < keys - keys / 8;
            break;
        case MaskValues::kTree:
            hidden = key >= keys - rows && !is_self_or_ancestor(key - (keys - rows), row);
            break;
        default:
            break;
        }
        return hidden ? uint8_t{0} : visible;
    });
}

std::vector<float> make_alibi_slopes(const Case &c) {
    std::vector<float> slopes;
    for (int64_t h = 0; c.alibi && h < c.query_heads; ++h) {
        // The geometric sequence of Press et al., 2022, with a zero and a negative slope among them.
        constexpr float kSpecial[] = {0.0f, -0.05f};
        float usual = std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(c.query_heads));
        slopes.push_back(h % 5 >= 3 ? kSpecial[h % 5 - 3] : usual);
    }
    return slopes;
}

std::vector<float> make_sinks(const Case &c) {
    std::vector<float> sinks;
    Random random(c.seed() + 5);
    for (int64_t h = 0; c.sinks != Sinks::kNone && h < c.query_heads; ++h) {
        constexpr float kHuge[] = {1e4f, 1e30f};
        constexpr float kMixed[] = {-kInf, 0.0f, 3.0f, 1e4f, -1e4f};
        float normal = random.normal();
        float value = 0.0f;
        switch (c.sinks) {
        case Sinks::kNormal:
            value = normal;
            break;
        case Sinks::kNegativeInf:
            value = -kInf;
            break;
        case Sinks::kHuge:
            value = kHuge[h % 2];
            break;
        case Sinks::kMixed:
            value = kMixed[h % 5];
            break;
        default:
            break;
        }
        sinks.push_back(value);
    }
    return sinks;
}

namespace {

// How many rows of the query heads that share a kv head see the key, of how many there are.
struct Audience {
    int64_t seeing = 0;
    int64_t rows = 0;
};

Audience audience(const hattn_attention_desc &desc, const hattn_attention_args &args, int64_t b, int64_t kv_head,
                  int64_t j) {
    Audience result;
    int64_t group = desc.query_heads / desc.kv_heads;
    int64_t rows = args.q_lengths ? args.q_lengths[b] : args.q.extent[2];
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
            result.seeing += sees(desc, args, b, h, i, j) ? 1 : 0;
            ++result.rows;
        }
    }
    return result;
}

void poison_row(const hattn_tensor &tensor, int64_t i0, int64_t i1, int64_t i2) {
    for (int64_t d = 0; d < tensor.extent[3]; ++d) {
        constexpr float kPoison[] = {kNan, kInf, -kInf};
        element<float>(tensor, i0, i1, i2, d) = kPoison[(i2 + d) % 3];
    }
}

void poison_keys(const Case &c, const hattn_attention_desc &desc, const hattn_attention_args &args) {
    for (int64_t b = 0; b < c.batch; ++b) {
        for (int64_t kv_head = 0; kv_head < c.kv_heads; ++kv_head) {
            int64_t partly_seen = -1;
            for (int64_t j = 0; j < c.kv_length; ++j) {
                Audience watchers = audience(desc, args, b, kv_head, j);
                if (watchers.seeing == 0) {
                    poison_row(args.k, b, kv_head, j);
                    poison_row(args.v, b, kv_head, j);
                } else if (watchers.seeing < watchers.rows) {
                    partly_seen = j;
                }
            }
            if (c.data == Data::kPoisonPartlySeen && partly_seen >= 0) {
                element<float>(args.k, b, kv_head, partly_seen, 0) = kNan;
            }
        }
    }
}

void poison_bias(const Case &c, const hattn_tensor &bias, const hattn_attention_args &args) {
    for_each_index(extents_of(bias), [&](int64_t i0, int64_t i1, int64_t row, int64_t key) {
        bool used = false;  // where the bias is broadcast, row and key 0 are within the lengths if any is
        for (int64_t b = 0; b < c.batch; ++b) {
            bool applies = bias.extent[0] == 1 || b == i0;
            bool inside = row < (args.q_lengths ? args.q_lengths[b] : c.query_length) &&
                          key < (args.kv_lengths ? args.kv_lengths[b] : c.kv_length);
            used = used || (applies && inside);
        }
        if (!used) {
            element<float>(bias, i0, i1, row, key) = kNan;
        }
    });
}

}  // namespace

void poison(const Case &c, const hattn_attention_desc &desc, const hattn_attention_args &args) {
    poison_keys(c, desc, args);
    for (int64_t b = 0; b < c.batch && args.q_lengths; ++b) {
        for (int64_t h = 0; h < c.query_heads; ++h) {
            for (int64_t i = args.q_lengths[b]; i < c.query_length; ++i) {
                poison_row(args.q, b, h, i);
            }
        }
    }
    if (c.bias.given) {
        poison_bias(c, args.bias, args);
    }
}

}  // namespace hattn::cases
