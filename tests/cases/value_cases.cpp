#include <string>
#include <utility>

#include "case_list.h"

namespace hattn::cases {

namespace {

Case base(Data data, int64_t query_length, int64_t kv_length) {
    Case c;
    c.data = data;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = query_length;
    c.kv_length = kv_length;
    c.key_dim = c.value_dim = 32;
    return c;
}

std::string rows(int64_t query_length) {
    return "_queries_" + std::to_string(query_length);
}

void add_extreme(std::vector<Case> &list) {
    for (int64_t query_length : {1, 4, 30}) {
        Case c = base(Data::kExtremeLogits, query_length, 150);
        add(list, "extreme_logits" + rows(query_length), c);
        c.causal = true;
        add(list, "extreme_logits_causal" + rows(query_length), c);
        c.sinks = Sinks::kNormal;
        add(list, "extreme_logits_causal_sinks" + rows(query_length), c);
        c.softcap = 20.0f;
        add(list, "extreme_logits_causal_softcap" + rows(query_length), c);
        c = base(Data::kExtremeLogits, query_length, 70);
        c.bias = varying("hqk");
        c.bias_values = BiasValues::kExtreme;
        add(list, "extreme_logits_and_bias" + rows(query_length), c);
        c.scores = HATTN_SCORES_PROBABILITIES;
        add(list, "extreme_logits_probabilities" + rows(query_length), c);
        c = base(Data::kRisingLogits, query_length, 600);
        add(list, "rising_logits" + rows(query_length), c);
        c.causal = true;
        add(list, "rising_logits_causal" + rows(query_length), c);
        c.data = Data::kSlowlyRising;
        add(list, "slowly_rising_logits_causal" + rows(query_length), c);
        c = base(Data::kSlowlyRising, query_length, 290);
        c.query_heads = c.kv_heads = 1;
        c.key_dim = c.value_dim = 16;
        add(list, "slowly_rising_logits_of_one_head" + rows(query_length), c);
    }
}

// Keys and values that no row of the kv head's group sees hold NaN and Inf; so do query rows past their sequence.
void add_poison(std::vector<Case> &list) {
    for (int64_t query_length : {1, 5, 34}) {
        for (Data data : {Data::kPoisonHidden, Data::kPoisonPartlySeen}) {
            std::string name = data == Data::kPoisonHidden ? "poison_hidden" : "poison_partly_seen";
            Case c = base(data, query_length, 140);
            c.batch = 3;
            c.kv_lengths = {140, 65, 3};
            c.q_lengths = {static_cast<int32_t>(query_length), static_cast<int32_t>(query_length / 2), 0};
            c.causal = true;
            add(list, name + "_lengths" + rows(query_length), c);
            c.window_left = 20;
            add(list, name + "_lengths_window" + rows(query_length), c);
            c.bias = varying("hqk");
            c.scores = HATTN_SCORES_MASKED;
            add(list, name + "_lengths_window_scores" + rows(query_length), c);
            c = base(data, query_length, 100);
            c.mask = varying("k");
            c.mask_values = MaskValues::kHiddenKeys;
            add(list, name + "_mask" + rows(query_length), c);
            c.scores = HATTN_SCORES_PROBABILITIES;
            add(list, name + "_mask_probabilities" + rows(query_length), c);
            c.softcap = 3.0f;
            c.alibi = true;
            c.sinks = Sinks::kNormal;
            add(list, name + "_mask_softcap_alibi_sinks" + rows(query_length), c);
            c = base(data, query_length, 400);
            c.mask = varying("k");
            c.mask_values = MaskValues::kHiddenRange;
            add(list, name + "_mask_range" + rows(query_length), c);
            c = base(data, query_length, 100);
            c.bias = varying("k");
            c.bias_values = BiasValues::kSomeNegativeInf;
            add(list, name + "_bias" + rows(query_length), c);
            c.mask = varying("");
            c.mask_values = MaskValues::kAllHidden;
            add(list, name + "_nothing_visible" + rows(query_length), c);
            c = base(data, query_length, 64);
            c.causal = true;
            c.causal_offsets = {-10};
            add(list, name + "_before_first_key" + rows(query_length), c);
        }
    }
}

// Results that every correct kernel must produce to the bit: means over a power of two keys of small integers, and rows
// that see a single key.
void add_exact(std::vector<Case> &list) {
    for (int64_t query_length : {1, 6, 33}) {
        for (int64_t kv_length : {1, 2, 64, 256, 1024}) {
            for (Data data : {Data::kZeroQueries, Data::kEqualLogits}) {
                Case c = base(data, query_length, kv_length);
                c.tolerance = Tolerance::kExact;
                std::string name = data == Data::kZeroQueries ? "exact_mean" : "exact_mean_of_large_logits";
                add(list, name + "_keys_" + std::to_string(kv_length) + rows(query_length), c);
            }
        }
        Case c = base(Data::kNormal, query_length, 150);
        c.window_left = c.window_right = 0;
        c.tolerance = Tolerance::kExact;
        add(list, "exact_single_key" + rows(query_length), c);
        c.data = Data::kExtremeLogits;
        add(list, "exact_single_key_extreme_logits" + rows(query_length), c);
        c.alibi = true;
        c.softcap = 3.0f;
        c.bias = varying("k");
        add(list, "exact_single_key_hooks" + rows(query_length), c);
        c.sinks = Sinks::kNegativeInf;
        add(list, "exact_single_key_hooks_dead_sink" + rows(query_length), c);
    }
}

}  // namespace

std::vector<Case> value_cases() {
    std::vector<Case> list;
    add_extreme(list);
    add_poison(list);
    add_exact(list);
    return list;
}

}  // namespace hattn::cases
