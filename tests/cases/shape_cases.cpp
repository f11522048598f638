#include <string>
#include <utility>

#include "case_list.h"

namespace hattn::cases {

namespace {

std::string number(int64_t value) {
    return std::to_string(value);
}

Case with_lengths(Case c, int64_t query_length, int64_t kv_length) {
    c.query_length = query_length;
    c.kv_length = kv_length;
    return c;
}

Case with_heads(Case c, int64_t query_heads, int64_t kv_heads) {
    c.query_heads = query_heads;
    c.kv_heads = kv_heads;
    return c;
}

// A prefill tile with a ragged edge, and one row against more keys than a chunk.
void add_prefill_and_decode(std::vector<Case> &list, const std::string &name, Case c) {
    c.causal = true;
    add(list, name + "_prefill", with_lengths(c, 19, 45));
    add(list, name + "_decode", with_lengths(c, 1, 133));
}

void add_head_sizes(std::vector<Case> &list) {
    for (int64_t dim : {1, 2, 3, 7, 8, 16, 31, 33, 64, 80, 96, 100, 128, 192, 256}) {
        Case c;
        c.key_dim = c.value_dim = dim;
        add_prefill_and_decode(list, "head_size_" + number(dim), c);
    }
    const std::pair<int64_t, int64_t> kUnequal[] = {{1, 16},  {16, 1},   {8, 64},   {64, 8},    {31, 33},
                                                    {33, 31}, {64, 128}, {128, 64}, {192, 128}, {96, 100},
                                                    {100, 7}, {256, 2},  {3, 256}};
    for (auto [key_dim, value_dim] : kUnequal) {
        Case c;
        c.key_dim = key_dim;
        c.value_dim = value_dim;
        add_prefill_and_decode(list, "head_sizes_" + number(key_dim) + "_" + number(value_dim), c);
    }
}

void add_head_ratios(std::vector<Case> &list) {
    const std::pair<int64_t, int64_t> kHeads[] = {{1, 1},   {2, 2},  {3, 1},  {4, 2},  {5, 5},  {6, 2},
                                                  {7, 1},   {8, 1},  {8, 8},  {9, 3},  {12, 4}, {16, 1},
                                                  {16, 16}, {15, 5}, {32, 2}, {48, 1}, {71, 1}, {130, 1}};
    for (auto [query_heads, kv_heads] : kHeads) {
        Case c = with_heads({}, query_heads, kv_heads);
        c.batch = 2;
        c.causal = true;
        std::string name = "heads_" + number(query_heads) + "_" + number(kv_heads);
        add(list, name + "_one_row", with_lengths(c, 1, 40));
        add(list, name + "_rows", with_lengths(c, 9, 40));
    }
    for (int64_t batch = 1; batch <= 5; ++batch) {
        Case c = with_heads(with_lengths({}, 6, 21), 4, 2);
        c.batch = batch;
        add(list, "batch_" + number(batch), c);
    }
}

void add_query_edges(std::vector<Case> &list) {
    for (int64_t tile : {8, 16, 24, 32, 48, 64, 96}) {
        for (int64_t delta : {-1, 0, 1}) {
            Case c = with_heads(with_lengths({}, tile + delta, 40), 1, 1);
            std::string name = "query_edge_" + number(tile + delta);
            add(list, name, c);
            c.causal = true;
            add(list, name + "_causal", with_lengths(c, tile + delta, tile + delta + 5));
            add(list, name + "_grouped", with_heads(c, 3, 1));
        }
    }
}

void add_key_edges(std::vector<Case> &list) {
    for (int64_t chunk : {4, 8, 32, 64, 96, 128, 192, 256, 512, 1024}) {
        for (int64_t delta : {-1, 0, 1}) {
            std::string name = "key_edge_" + number(chunk + delta);
            Case c = with_heads({}, 4, 2);
            add(list, name + "_one_row", with_lengths(c, 1, chunk + delta));
            c = with_heads(c, 1, 1);
            add(list, name + "_rows", with_lengths(c, 10, chunk + delta));
            c.causal = true;
            add(list, name + "_causal", with_lengths(c, 21, chunk + delta));
        }
    }
}

void add_more_queries_than_keys(std::vector<Case> &list) {
    const std::pair<int64_t, int64_t> kLengths[] = {{9, 4}, {65, 33}, {130, 64}, {40, 1}, {2, 1}};
    for (auto [query_length, kv_length] : kLengths) {
        Case c = with_lengths({}, query_length, kv_length);
        std::string name = "queries_" + number(query_length) + "_keys_" + number(kv_length);
        add(list, name, c);
        c.causal = true;  // the default offset is negative: leading rows see nothing
        add(list, name + "_causal", c);
        c.sinks = Sinks::kNormal;
        add(list, name + "_causal_sinks", c);
    }
}

void add_empty(std::vector<Case> &list) {
    Case c;
    c.batch = 2;
    add(list, "empty_queries", with_lengths(c, 0, 9));
    add(list, "empty_keys", with_lengths(c, 7, 0));
    add(list, "empty_both", with_lengths(c, 0, 0));
    Case causal = c;
    causal.causal = true;
    add(list, "empty_keys_causal", with_lengths(causal, 7, 0));
    Case sinks = c;
    sinks.sinks = Sinks::kNormal;
    add(list, "empty_keys_sinks", with_lengths(sinks, 7, 0));
    Case none = c;
    none.batch = 0;
    add(list, "empty_batch", with_lengths(none, 3, 9));
    Case scores = c;
    scores.scores = HATTN_SCORES_MASKED;
    add(list, "empty_keys_scores", with_lengths(scores, 3, 0));
    scores.batch = 0;
    add(list, "empty_batch_scores", with_lengths(scores, 3, 5));
}

void add_long(std::vector<Case> &list) {
    Case c = with_heads({}, 2, 1);
    c.key_dim = c.value_dim = 64;
    c.causal = true;
    add(list, "long_prefill", with_lengths(c, 260, 260));
    add(list, "long_chunked_prefill", with_lengths(c, 70, 600));
    c = with_heads(c, 8, 2);
    add(list, "long_decode", with_lengths(c, 1, 2100));
    add(list, "long_decode_rows", with_lengths(c, 4, 1300));
    // More weights than `unfused` holds at a time: 2.5 million.
    Case many = with_heads({}, 8, 4);
    many.batch = 2;
    many.key_dim = many.value_dim = 8;
    many.causal = true;
    add(list, "long_many_rows", with_lengths(many, 32, 5000));
    // Few tiles of flash, which are split.
    Case split = with_heads({}, 40, 1);
    split.key_dim = split.value_dim = 16;
    split.causal = true;
    split.sinks = Sinks::kNormal;
    add(list, "long_many_heads", with_lengths(split, 1, 4700));
    split.window_left = 4500;
    split.mask = varying("qk");
    split.bias = varying("hk");
    add(list, "long_many_heads_rows", with_lengths(split, 3, 4700));
    c.lse = false;
    add(list, "long_without_lse", with_lengths(c, 5, 300));
}

}  // namespace

std::vector<Case> shape_cases() {
    std::vector<Case> list;
    add_head_sizes(list);
    add_head_ratios(list);
    add_query_edges(list);
    add_key_edges(list);
    add_more_queries_than_keys(list);
    add_empty(list);
    add_long(list);
    return list;
}

}  // namespace hattn::cases
