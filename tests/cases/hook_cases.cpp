#include <string>
#include <utility>

#include "case_list.h"

namespace hattn::cases {

namespace {

Case two_sequences(int64_t query_length, int64_t kv_length) {
    Case c;
    c.batch = 2;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = query_length;
    c.kv_length = kv_length;
    return c;
}

constexpr unsigned kHookCombinations = 16;

// Bit n switches the n-th row of the hook table on.
Case with_hooks(Case c, unsigned bits) {
    c.softcap = (bits & 1u) ? 1.5f : 0.0f;
    if (bits & 2u) {
        c.bias = varying("bhqk");
    }
    c.alibi = (bits & 4u) != 0;
    if (bits & 8u) {
        c.mask = varying("bhqk");
    }
    return c;
}

std::string hook_name(unsigned bits) {
    std::string name;
    for (const std::string &hook : with_hooks({}, bits).hooks()) {
        name += "_" + hook;
    }
    return name.empty() ? "_none" : name;
}

void add_combinations(std::vector<Case> &list) {
    for (unsigned bits = 0; bits < kHookCombinations; ++bits) {
        std::string name = "hooks" + hook_name(bits);
        Case c = with_hooks(two_sequences(23, 75), bits);
        add(list, name, c);
        add(list, name + "_one_row", with_hooks(two_sequences(1, 140), bits));
        c.causal = true;
        c.sinks = Sinks::kNormal;
        add(list, name + "_causal_sinks", c);
        c.window_left = 12;
        c.query_length = 5;
        add(list, name + "_window_sinks", c);
    }
}

void add_broadcasts(std::vector<Case> &list) {
    constexpr std::string_view kLetters = "bhqk";
    for (unsigned bits = 0; bits < 16; ++bits) {
        std::string dimensions;
        for (unsigned dim = 0; dim < 4; ++dim) {
            if (bits & (1u << dim)) {
                dimensions += kLetters[dim];
            }
        }
        std::string suffix = dimensions.empty() ? "_one" : "_" + dimensions;
        for (int64_t query_length : {1, 11}) {
            Case c = two_sequences(query_length, 67);
            std::string rows = "_queries_" + std::to_string(query_length);
            Case bias = c;
            bias.bias = varying(dimensions);
            add(list, "bias_varies" + suffix + rows, bias);
            Case mask = c;
            mask.mask = varying(dimensions);
            add(list, "mask_varies" + suffix + rows, mask);
        }
    }
}

void add_operand_values(std::vector<Case> &list) {
    const std::pair<BiasValues, const char *> kBias[] = {{BiasValues::kExtreme, "extreme"},
                                                         {BiasValues::kSomeNegativeInf, "some_negative_inf"},
                                                         {BiasValues::kNegativeInfRows, "negative_inf_rows"},
                                                         {BiasValues::kSomeLowest, "some_lowest"}};
    const std::pair<MaskValues, const char *> kMask[] = {{MaskValues::kEmptyRows, "empty_rows"},
                                                         {MaskValues::kAllHidden, "all_hidden"},
                                                         {MaskValues::kAllVisible, "all_visible"},
                                                         {MaskValues::kHiddenKeys, "hidden_keys"}};
    for (int64_t query_length : {1, 20}) {
        std::string rows = "_queries_" + std::to_string(query_length);
        for (auto [values, name] : kBias) {
            Case c = two_sequences(query_length, 72);
            c.bias = varying("hqk");
            c.bias_values = values;
            add(list, std::string("bias_") + name + rows, c);
            c.sinks = Sinks::kNormal;
            add(list, std::string("bias_") + name + "_sinks" + rows, c);
            c.softcap = 2.0f;
            add(list, std::string("bias_") + name + "_sinks_softcap" + rows, c);
        }
        for (auto [values, name] : kMask) {
            Case c = two_sequences(query_length, 72);
            c.mask = varying("bqk");
            c.mask_values = values;
            add(list, std::string("mask_") + name + rows, c);
            c.sinks = Sinks::kNormal;
            add(list, std::string("mask_") + name + "_sinks" + rows, c);
            c.causal = true;
            add(list, std::string("mask_") + name + "_sinks_causal" + rows, c);
        }
    }
}

void add_scalars(std::vector<Case> &list) {
    for (float softcap : {0.01f, 0.5f, 5.0f, 30.0f, 50.0f, 1000.0f}) {
        Case c = two_sequences(13, 50);
        c.softcap = softcap;
        c.scale = 1.0f;  // scores well beyond the smaller caps
        add(list, "softcap_" + std::to_string(static_cast<int>(softcap * 100.0f)) + "_hundredths", c);
    }
    const std::pair<float, const char *> kScales[] = {
        {0.0f, "zero"}, {1.0f, "one"}, {-0.5f, "negative"}, {3.0f, "three"}, {1e-6f, "tiny"}};
    for (auto [scale, name] : kScales) {
        Case c = two_sequences(9, 41);
        c.scale = scale;
        add(list, std::string("scale_") + name, c);
        c.query_length = 1;
        c.causal = true;
        add(list, std::string("scale_") + name + "_one_row", c);
    }
}

void add_sinks(std::vector<Case> &list) {
    const std::pair<Sinks, const char *> kSinks[] = {{Sinks::kSmooth, "smooth"},
                                                     {Sinks::kNormal, "normal"},
                                                     {Sinks::kNegativeInf, "negative_inf"},
                                                     {Sinks::kHuge, "huge"},
                                                     {Sinks::kMixed, "mixed"}};
    for (auto [sinks, name] : kSinks) {
        Case c = two_sequences(14, 66);
        c.sinks = sinks;
        add(list, std::string("sinks_") + name, c);
        c.causal = true;
        c.causal_offsets = {-6, 30};  // the first rows of one sequence see nothing
        add(list, std::string("sinks_") + name + "_empty_rows", c);
        Case one_row = two_sequences(1, 530);
        one_row.sinks = sinks;
        add(list, std::string("sinks_") + name + "_one_row", one_row);
        one_row.mask = varying("b");
        one_row.mask_values = MaskValues::kAllHidden;
        add(list, std::string("sinks_") + name + "_all_hidden", one_row);
        one_row.softcap = 1.0f;
        one_row.alibi = true;
        add(list, std::string("sinks_") + name + "_all_hidden_softcap_alibi", one_row);
    }
}

// Drafted tokens of speculative decoding, after the keys that all of them continue.
void add_trees(std::vector<Case> &list) {
    for (int64_t rows : {2, 7, 30}) {
        for (int64_t keys : {40, 700}) {
            Case c = two_sequences(rows, keys);
            c.mask = varying("qk");
            c.mask_values = MaskValues::kTree;
            add(list, "tree_q" + std::to_string(rows) + "_k" + std::to_string(keys), c);
        }
    }
}

void add_score_outputs(std::vector<Case> &list) {
    const std::pair<hattn_scores, const char *> kModes[] = {{HATTN_SCORES_RAW, "raw"},
                                                            {HATTN_SCORES_CAPPED, "capped"},
                                                            {HATTN_SCORES_MASKED, "masked"},
                                                            {HATTN_SCORES_PROBABILITIES, "probabilities"}};
    for (auto [mode, name] : kModes) {
        for (unsigned bits = 0; bits < kHookCombinations; ++bits) {
            Case c = with_hooks(two_sequences(bits % 2 ? 9 : 1, 70), bits);
            c.scores = mode;
            c.causal = bits % 3 != 0;
            c.sinks = bits % 5 == 0 ? Sinks::kNormal : Sinks::kNone;
            add(list, std::string("scores_") + name + hook_name(bits), c);
        }
        Case c = two_sequences(21, 150);
        c.scores = mode;
        c.softcap = 2.0f;
        c.window_left = 30;
        c.window_right = 2;
        add(list, std::string("scores_") + name + "_window", c);
        c.lse = false;
        c.layout = Layout::kPadded;
        add(list, std::string("scores_") + name + "_padded_without_lse", c);
        c.layout = Layout::kBhsd;
        c.mask = varying("q");
        c.mask_values = MaskValues::kEmptyRows;
        c.bias = varying("k");
        c.bias_values = BiasValues::kSomeNegativeInf;
        add(list, std::string("scores_") + name + "_empty_rows", c);
    }
}

}  // namespace

std::vector<Case> hook_cases() {
    std::vector<Case> list;
    add_combinations(list);
    add_broadcasts(list);
    add_operand_values(list);
    add_scalars(list);
    add_sinks(list);
    add_trees(list);
    add_score_outputs(list);
    return list;
}

}  // namespace hattn::cases
