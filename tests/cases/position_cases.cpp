#include <string>
#include <utility>

#include "case_list.h"

namespace hattn::cases {

namespace {

std::string signed_number(int64_t value) {
    return value < 0 ? "minus_" + std::to_string(-value) : std::to_string(value);
}

Case base(int64_t query_length, int64_t kv_length) {
    Case c;
    c.query_length = query_length;
    c.kv_length = kv_length;
    return c;
}

void add_windows(std::vector<Case> &list) {
    const std::pair<int64_t, int64_t> kWindows[] = {{0, 0},  {0, -1}, {-1, 0}, {1, 0},   {0, 1},   {3, 2},     {8, 8},
                                                    {15, 0}, {16, 1}, {-1, 5}, {31, -1}, {32, 32}, {100, 100}, {63, 0}};
    const std::pair<int64_t, int64_t> kLengths[] = {{1, 70}, {26, 70}, {70, 70}, {70, 26}};
    for (auto [left, right] : kWindows) {
        for (auto [query_length, kv_length] : kLengths) {
            Case c = base(query_length, kv_length);
            c.window_left = left;
            c.window_right = right;
            std::string name = "window_" + signed_number(left) + "_" + signed_number(right) + "_queries_" +
                               std::to_string(query_length) + "_keys_" + std::to_string(kv_length);
            add(list, name, c);
            if (right != 0) {
                c.causal = true;
                add(list, name + "_causal", c);
            }
        }
    }
    // Rows of a tile that see none of the first blocks of 32 keys, of the last ones, or of a whole chunk that others
    // see.
    Case apart = base(36, 130);
    apart.query_heads = apart.kv_heads = 1;
    for (const auto &[left, right] : {std::pair<int64_t, int64_t>{3, 0}, {0, 0}, {40, 0}, {2, 20}}) {
        apart.window_left = left;
        apart.window_right = right;
        add(list, "window_" + signed_number(left) + "_" + signed_number(right) + "_over_two_chunks", apart);
    }
    Case narrow = base(1, 1500);
    narrow.window_left = 40;
    narrow.window_right = 0;
    add(list, "window_deep_in_a_long_cache", narrow);
    Case huge = base(12, 30);
    huge.window_left = int64_t{1} << 40;
    huge.window_right = int64_t{1} << 40;
    add(list, "window_wider_than_32_bits", huge);
}

void add_offsets(std::vector<Case> &list) {
    for (int32_t offset : {-100, -19, -5, -1, 0, 1, 17, 29, 30, 100, 1 << 29}) {
        for (bool causal : {true, false}) {
            Case c = base(20, 49);
            c.causal = causal;
            c.causal_offsets = {offset};
            if (!causal) {
                c.window_left = 9;
                c.window_right = 4;
            }
            std::string name = "offset_" + signed_number(offset) + (causal ? "_causal" : "_window");
            add(list, name, c);
        }
    }
    Case ragged = base(20, 49);
    ragged.batch = 5;
    ragged.causal = true;
    ragged.causal_offsets = {-21, -3, 0, 29, 60};
    add(list, "offsets_ragged", ragged);
    ragged.window_left = 6;
    ragged.alibi = true;
    add(list, "offsets_ragged_window_alibi", ragged);
}

void add_kv_lengths(std::vector<Case> &list, int64_t query_length) {
    std::string suffix = "_queries_" + std::to_string(query_length);
    Case c = base(query_length, 70);
    c.batch = 5;
    c.kv_lengths = {70, 0, 1, 33, 64};
    add(list, "kv_lengths" + suffix, c);
    c.causal = true;
    add(list, "kv_lengths_causal" + suffix, c);
    c.sinks = Sinks::kNormal;
    add(list, "kv_lengths_causal_sinks" + suffix, c);
    c.sinks = Sinks::kNone;
    c.window_left = 10;
    add(list, "kv_lengths_window" + suffix, c);
    c.mask = varying("bqk");
    c.bias = varying("hk");
    add(list, "kv_lengths_window_mask_bias" + suffix, c);
    Case long_keys = base(query_length, 1100);
    long_keys.batch = 4;
    long_keys.causal = true;
    long_keys.kv_lengths = {1100, 257, 512, 1023};
    add(list, "kv_lengths_long" + suffix, long_keys);
}

void add_q_lengths(std::vector<Case> &list) {
    Case c = base(40, 50);
    c.batch = 5;
    c.q_lengths = {40, 0, 1, 16, 33};
    add(list, "q_lengths", c);
    c.causal = true;
    add(list, "q_lengths_causal", c);
    c.sinks = Sinks::kSmooth;
    add(list, "q_lengths_causal_sinks", c);
    c.sinks = Sinks::kNone;
    c.kv_lengths = {50, 20, 0, 8, 49};  // the default offset is negative for some
    add(list, "both_lengths_causal", c);
    c.causal_offsets = {10, 0, 3, -4, 100};
    add(list, "both_lengths_causal_offsets", c);
    c.window_left = 5;
    c.window_right = 3;
    c.causal = false;
    add(list, "both_lengths_window_offsets", c);
    c.alibi = true;
    c.mask = varying("bhqk");
    c.bias = varying("bhqk");
    c.softcap = 4.0f;
    add(list, "both_lengths_every_hook", c);
    for (hattn_scores scores :
         {HATTN_SCORES_RAW, HATTN_SCORES_CAPPED, HATTN_SCORES_MASKED, HATTN_SCORES_PROBABILITIES}) {
        c.scores = scores;
        add(list, "both_lengths_scores_" + std::to_string(scores), c);
    }
    Case none = base(12, 30);
    none.batch = 3;
    none.q_lengths = {0, 0, 0};
    add(list, "q_lengths_all_zero", none);
    none.q_lengths.clear();
    none.kv_lengths = {0, 0, 0};
    add(list, "kv_lengths_all_zero", none);
}

}  // namespace

std::vector<Case> position_cases() {
    std::vector<Case> list;
    add_windows(list);
    add_offsets(list);
    for (int64_t query_length : {1, 5, 34}) {
        add_kv_lengths(list, query_length);
    }
    add_q_lengths(list);
    return list;
}

}  // namespace hattn::cases
