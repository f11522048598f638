// Configurations drawn from the whole space, to meet combinations that nobody thought of.
#include <string>

#include "case_list.h"
#include "random.h"

namespace hattn::cases {

namespace {

template<typename T, size_t N>
T one_of(Random &random, const T (&values)[N]) {
    return values[random.integer(0, static_cast<int64_t>(N) - 1)];
}

Operand random_operand(Random &random) {
    std::string dimensions;
    for (char letter : {'b', 'h', 'q', 'k'}) {
        if (random.chance(0.6)) {
            dimensions += letter;
        }
    }
    return varying(dimensions);
}

void draw_shape(Random &random, Case &c) {
    constexpr int64_t kDims[] = {1, 4, 5, 8, 16, 17, 24, 32, 40, 64, 72, 96, 128};
    constexpr int64_t kRatios[] = {1, 1, 2, 3, 4, 7, 8};
    c.batch = random.integer(1, 4);
    c.kv_heads = random.integer(1, 3);
    c.query_heads = c.kv_heads * one_of(random, kRatios);
    c.key_dim = one_of(random, kDims);
    c.value_dim = random.chance(0.7) ? c.key_dim : one_of(random, kDims);
    bool one_row = random.chance(0.3);
    c.query_length = one_row ? 1 : random.integer(2, 60);
    c.kv_length = random.integer(1, one_row ? 400 : 150);
}

void draw_positions(Random &random, Case &c) {
    c.causal = random.chance(0.5);
    if (random.chance(0.3)) {
        c.window_left = random.integer(-1, 40);
        c.window_right = random.integer(-1, 20);
    }
    for (int64_t b = 0; b < c.batch; ++b) {
        c.q_lengths.push_back(static_cast<int32_t>(random.integer(0, c.query_length)));
        c.kv_lengths.push_back(static_cast<int32_t>(random.integer(0, c.kv_length)));
        c.causal_offsets.push_back(static_cast<int32_t>(random.integer(-20, c.kv_length + 5)));
    }
    for (std::vector<int32_t> *optional : {&c.q_lengths, &c.kv_lengths, &c.causal_offsets}) {
        if (random.chance(0.6)) {
            optional->clear();
        }
    }
}

void draw_hooks(Random &random, Case &c) {
    constexpr float kCaps[] = {0.7f, 4.0f, 50.0f};
    constexpr Sinks kSinks[] = {Sinks::kSmooth, Sinks::kNormal, Sinks::kMixed};
    constexpr BiasValues kBias[] = {BiasValues::kNormal, BiasValues::kNormal, BiasValues::kSomeNegativeInf};
    constexpr MaskValues kMask[] = {MaskValues::kRandom, MaskValues::kEmptyRows, MaskValues::kHiddenKeys};
    if (random.chance(0.3)) {
        c.softcap = one_of(random, kCaps);
    }
    if (random.chance(0.35)) {
        c.bias = random_operand(random);
        c.bias_values = one_of(random, kBias);
    }
    if (random.chance(0.35)) {
        c.mask = random_operand(random);
        c.mask_values = one_of(random, kMask);
    }
    c.alibi = random.chance(0.3);
    if (random.chance(0.3)) {
        c.sinks = one_of(random, kSinks);
    }
    if (random.chance(0.2)) {
        c.scale = 0.3f;
    }
}

void draw_storage(Random &random, Case &c) {
    constexpr Layout kLayouts[] = {Layout::kBhsd, Layout::kBshd, Layout::kPadded, Layout::kEveryOther};
    constexpr Data kData[] = {Data::kNormal, Data::kNormal, Data::kPoisonHidden, Data::kExtremeLogits};
    c.layout = one_of(random, kLayouts);
    c.data = one_of(random, kData);
    c.lse = random.chance(0.8);
    if (random.chance(0.15)) {
        c.scores = random.chance(0.5) ? HATTN_SCORES_MASKED : HATTN_SCORES_PROBABILITIES;
    }
}

}  // namespace

std::vector<Case> random_cases(size_t count) {
    std::vector<Case> list;
    for (size_t i = 0; i < count; ++i) {
        Case c;
        c.name = "random_" + std::to_string(i);
        Random random(c.seed());
        draw_shape(random, c);
        draw_positions(random, c);
        draw_hooks(random, c);
        draw_storage(random, c);
        list.push_back(c);
    }
    return list;
}

}  // namespace hattn::cases
