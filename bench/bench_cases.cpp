#include "bench_cases.h"

#include <string>

namespace hattn::bench {

namespace {

using cases::Case;

// The shape that everything else varies: B1 Hq16 Hkv8 D128, causal.
Case prefill(const std::string &name, int64_t length) {
    Case c;
    c.name = name;
    c.batch = 1;
    c.query_heads = 16;
    c.kv_heads = 8;
    c.query_length = c.kv_length = length;
    c.key_dim = c.value_dim = 128;
    c.causal = true;
    c.lse = false;
    return c;
}

Case decode(int64_t keys) {
    Case c = prefill("decode_k" + std::to_string(keys), keys);
    c.query_length = 1;
    return c;
}

// A case and the one thing about it that differs.
template<typename Change>
Case with(Case c, Change change) {
    change(c);
    return c;
}

void add_lengths(std::vector<BenchCase> &list) {
    for (int64_t length : {512, 1024, 2048, 4096}) {
        list.push_back({prefill("prefill_s" + std::to_string(length), length)});
    }
    list.push_back({with(prefill("prefill_s128_heads32", 128), [](Case &c) { c.query_heads = c.kv_heads = 32; })});
    list.push_back({with(prefill("prefill_s32_heads64", 32), [](Case &c) { c.query_heads = c.kv_heads = 64; })});
    list.push_back({with(prefill("prefill_batch8_s256", 256), [](Case &c) { c.batch = 8; })});
    list.push_back({with(prefill("chunk512_over8192", 8192), [](Case &c) { c.query_length = 512; })});
}

void add_shapes(std::vector<BenchCase> &list) {
    constexpr int64_t kLength = 2048;
    list.push_back({with(prefill("dim64_s2048", kLength), [](Case &c) { c.key_dim = c.value_dim = 64; })});
    list.push_back({with(prefill("dim256_s2048", kLength), [](Case &c) { c.key_dim = c.value_dim = 256; })});
    list.push_back({with(prefill("mha_s2048", kLength), [](Case &c) { c.kv_heads = c.query_heads; })});
    list.push_back({with(prefill("mqa_s2048", kLength), [](Case &c) { c.kv_heads = 1; })});
    list.push_back({with(prefill("full_s2048", kLength), [](Case &c) { c.causal = false; })});
    list.push_back({with(prefill("bshd_s2048", kLength), [](Case &c) { c.layout = cases::Layout::kBshd; })});
}

void add_options(std::vector<BenchCase> &list) {
    constexpr int64_t kLength = 2048;
    // 256 keys: a query's own and 255 before it.
    list.push_back({with(prefill("window256_s4096", 4096), [](Case &c) { c.window_left = 255; })});
    list.push_back({with(prefill("softcap_s2048", kLength), [](Case &c) { c.softcap = 30.0f; })});
    list.push_back({with(prefill("sink_s2048", kLength), [](Case &c) { c.sinks = cases::Sinks::kNormal; })});
    list.push_back({with(prefill("smooth_s2048", kLength), [](Case &c) { c.sinks = cases::Sinks::kSmooth; })});
    list.push_back({with(prefill("bias_qk_s2048", kLength), [](Case &c) { c.bias = cases::varying("qk"); })});
    list.push_back({with(prefill("bias_hqk_s1024", 1024), [](Case &c) { c.bias = cases::varying("hqk"); })});
    list.push_back({with(prefill("mask_qk_s2048", kLength), [](Case &c) { c.mask = cases::varying("qk"); })});
    list.push_back({with(prefill("alibi_s2048", kLength), [](Case &c) { c.alibi = true; })});
}

void add_decode(std::vector<BenchCase> &list) {
    for (int64_t keys : {512, 1024, 2048, 4096, 8192, 16384, 32768}) {
        list.push_back({decode(keys), Bound::kReading});
    }
    // Speculative decoding: eight drafted rows, in a line and as a tree.
    const Case drafted = with(decode(8192), [](Case &c) {
        c.name = "decode_draft8_k8192";
        c.query_length = 8;
    });
    list.push_back({drafted, Bound::kReading});
    list.push_back({with(drafted,
                         [](Case &c) {
                             c.name = "decode_tree8_k8192";
                             c.mask = cases::varying("qk");
                             c.mask_values = cases::MaskValues::kTree;
                         }),
                    Bound::kReading});
}

// Layers of SmolLM2-135M, the model of ./dev demo.
void add_model_layers(std::vector<BenchCase> &list) {
    auto layer = [](Case &c) {
        c.query_heads = 9;
        c.kv_heads = 3;
        c.key_dim = c.value_dim = 64;
    };
    list.push_back({with(prefill("smollm2_prefill_s1000", 1000), layer)});
    Case token = with(decode(1000), layer);
    token.name = "smollm2_decode_k1000";
    list.push_back({token, Bound::kReading});
}

}  // namespace

const std::vector<BenchCase> &bench_cases() {
    static const std::vector<BenchCase> list = [] {
        std::vector<BenchCase> all;
        add_lengths(all);
        add_shapes(all);
        add_options(all);
        add_decode(all);
        add_model_layers(all);
        return all;
    }();
    return list;
}

}  // namespace hattn::bench
