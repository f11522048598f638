// A named attention problem as data. Tests, benchmarks and the tuner's verification all start from it, so it depends on
// nothing but the public header.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hattn/hattn.h"

namespace hattn::cases {

// Which of [B, Hq, Sq, Sk] a bias or mask varies over; it has extent 1 in the others.
struct Operand {
    bool given = false;
    std::array<bool, 4> varies{};
};

// Letters of "bhqk", any subset: varying("hq") is [1, Hq, Sq, 1], varying("") a single number.
Operand varying(std::string_view dimensions);

enum class Layout {
    kBhsd,        // dense, as the logical order
    kBshd,        // dense [B, S, H, D]
    kPackedQkv,   // q, k, v are slices of one [B, S, Hq + 2 Hkv, D]; needs Sq = Sk and Dk = Dv
    kPadded,      // gaps after every row, head and sequence, base aligned to an element only
    kEveryOther,  // every other row of a [B, H, 2 S, D]
    kSharedKv,    // k and v have batch stride 0: one prefix for all sequences
    kSharedHead   // k and v have head stride 0: all kv heads read the same storage
};

enum class Data {
    kNormal,            // q, k, v standard normal
    kExtremeLogits,     // scores of magnitude 1e4
    kZeroQueries,       // all scores 0, v small integers: means are exact
    kEqualLogits,       // all scores equal and large, v small integers
    kOneSign,           // all products of queries and keys are positive, the largest that there may be
    kRisingLogits,      // scores grow along the keys: every chunk has a new maximum
    kSlowlyRising,      // likewise, by less from chunk to chunk than a reference may lag behind
    kPoisonHidden,      // as kNormal, with NaN and Inf wherever no row may look
    kPoisonPartlySeen,  // as kPoisonHidden, and NaN in a key that some rows see and others do not
    kWithinLengths      // as kNormal; keys past kv_lengths are 0, in memory that nothing touches
};

enum class BiasValues {
    kNormal,
    kExtreme,          // magnitude 1e4
    kSomeNegativeInf,  // a third of the entries
    kNegativeInfRows,  // every third row fully
    kSomeLowest        // the lowest finite float in a third of the entries, never in key 0
};

enum class MaskValues {
    kRandom,
    kEmptyRows,
    kAllHidden,
    kAllVisible,
    kHiddenKeys,
    kHiddenRange,  // whole chunks of keys between seen ones
    kTree          // the last Sq keys are the rows' own, a binary heap: row i sees them for itself and its ancestors
};

enum class Sinks { kNone, kSmooth, kNormal, kNegativeInf, kHuge, kMixed };

enum class Tolerance {
    kRounding,  // the oracle's bound, see oracle.h
    kExact      // out must be the exact value, bit for bit; lse and scores are held to the bound
};

struct Case {
    std::string name;  // letters, digits and underscores; unique in the list

    int64_t batch = 1;
    int64_t query_heads = 2;
    int64_t kv_heads = 1;
    int64_t query_length = 5;
    int64_t kv_length = 37;
    int64_t key_dim = 16;
    int64_t value_dim = 16;

    float scale = NAN;
    bool causal = false;
    int64_t window_left = -1;
    int64_t window_right = -1;
    float softcap = 0.0f;
    Operand bias;
    Operand mask;
    bool alibi = false;
    Sinks sinks = Sinks::kNone;
    std::vector<int32_t> q_lengths;       // [B]; empty: not given
    std::vector<int32_t> kv_lengths;      // likewise
    std::vector<int32_t> causal_offsets;  // likewise
    hattn_scores scores = HATTN_SCORES_NONE;
    bool lse = true;

    Layout layout = Layout::kBhsd;
    Data data = Data::kNormal;
    BiasValues bias_values = BiasValues::kNormal;
    MaskValues mask_values = MaskValues::kRandom;
    Tolerance tolerance = Tolerance::kRounding;

    // A function of the name alone, so that a case keeps its data when others come and go.
    uint64_t seed() const;
    // Multiply-adds of both products without any skipping.
    double work() const;
    // The four score hooks this case uses, in the order of the hook table: "softcap", "bias", "alibi", "mask".
    std::vector<std::string> hooks() const;
};

// One line with everything that differs from the defaults, and the seed.
std::string describe(const Case &c);

}  // namespace hattn::cases
