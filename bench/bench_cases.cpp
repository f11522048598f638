#include "bench_cases.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "random.h"

namespace hattn::bench {

namespace {

using cases::Case;

// The shape that everything else varies: B1 Hq16 Hkv8 D128, causal.
Case attention(const std::string &name, int64_t queries, int64_t keys) {
    Case c;
    c.name = name;
    c.batch = 1;
    c.query_heads = 16;
    c.kv_heads = 8;
    c.query_length = queries;
    c.kv_length = keys;
    c.key_dim = c.value_dim = 128;
    c.causal = true;
    c.lse = false;
    return c;
}

Case prefill(const std::string &name, int64_t length) {
    return attention(name, length, length);
}

Case decode(const std::string &name, int64_t keys) {
    return attention(name, 1, keys);
}

// A case and what about it differs.
template<typename Change>
Case with(Case c, Change change) {
    change(c);
    return c;
}

const auto kManyHeads = [](int64_t heads) { return [heads](Case &c) { c.query_heads = c.kv_heads = heads; }; };
const auto kHeadDim = [](int64_t dim) { return [dim](Case &c) { c.key_dim = c.value_dim = dim; }; };

constexpr int64_t kUsual = 2048;
constexpr const char *kPlain = "prefill_s2048";

// ---- prefill
// ---------------------------------------------------------------------------------------------------------

void add_lengths(std::vector<BenchCase> &list) {
    for (int64_t length : {512, 1024, 2048, 4096, 8192}) {
        std::string text = std::to_string(length);
        list.push_back({prefill("prefill_s" + text, length), "S = " + text});
    }
    list.push_back({with(prefill("prefill_s128_heads32", 128), kManyHeads(32)), "S = 128, Hq = Hkv = 32"});
    list.push_back({with(prefill("prefill_s32_heads64", 32), kManyHeads(64)), "S = 32, Hq = Hkv = 64"});
    list.push_back({with(prefill("prefill_batch8_s256", 256), [](Case &c) { c.batch = 8; }), "B = 8, S = 256"});
    list.push_back({attention("chunk512_over8192", 512, 8192), "512 new queries over 8192 keys"});
}

void add_shapes(std::vector<BenchCase> &list) {
    list.push_back({with(prefill("dim64_s2048", kUsual), kHeadDim(64)), "D = 64, S = 2048"});
    list.push_back({with(prefill("dim256_s2048", kUsual), kHeadDim(256)), "D = 256, S = 2048"});
    list.push_back({with(prefill("full_s2048", kUsual), [](Case &c) { c.causal = false; }), "not causal, S = 2048"});
    list.push_back({with(prefill("mha_s2048", kUsual), kManyHeads(16)), "Hkv = 16, S = 2048"});
    list.push_back({with(prefill("mqa_s2048", kUsual), [](Case &c) { c.kv_heads = 1; }), "Hkv = 1, S = 2048"});
}

void add_options(std::vector<BenchCase> &list) {
    auto beside_plain = [&list](const char *name, const char *title, auto change) {
        list.push_back({.problem = with(prefill(name, kUsual), change), .title = title, .beside = kPlain});
    };
    // 256 keys: a query's own and 255 before it.
    list.push_back({.problem = with(prefill("window256_s4096", 4096), [](Case &c) { c.window_left = 255; }),
                    .title = "window 256, S = 4096",
                    .beside = "prefill_s4096"});
    beside_plain("softcap_s2048", "softcap, S = 2048", [](Case &c) { c.softcap = 30.0f; });
    beside_plain("sink_s2048", "sink, S = 2048", [](Case &c) { c.sinks = cases::Sinks::kNormal; });
    beside_plain("smooth_s2048", "smooth softmax, S = 2048", [](Case &c) { c.sinks = cases::Sinks::kSmooth; });
    beside_plain("bias_qk_s2048", "bias [1, 1, S, S], S = 2048", [](Case &c) { c.bias = cases::varying("qk"); });
    beside_plain("bias_hqk_s2048", "bias [1, H, S, S], S = 2048", [](Case &c) { c.bias = cases::varying("hqk"); });
    beside_plain("mask_qk_s2048", "bool mask [1, 1, S, S], S = 2048", [](Case &c) { c.mask = cases::varying("qk"); });
    beside_plain("mask_hqk_s2048", "bool mask [1, H, S, S], S = 2048", [](Case &c) { c.mask = cases::varying("hqk"); });
    beside_plain("alibi_s2048", "ALiBi, S = 2048", [](Case &c) { c.alibi = true; });
    list.push_back({.problem = prefill("paged16_s2048", kUsual),
                    .title = "pages of 16 keys, S = 2048",
                    .beside = kPlain,
                    .page_size = 16});
}

void add_machine(std::vector<BenchCase> &list) {
    list.push_back({.problem = prefill("threads1_s2048", kUsual), .title = "1 thread, S = 2048", .threads = 1});
    list.push_back({.problem = prefill("threads2_s2048", kUsual),
                    .title = "2 threads, S = 2048",
                    .threads = 2,
                    .beside = "threads1_s2048"});
    list.push_back({.problem = prefill("avx2_s2048", kUsual),
                    .title = "AVX2 forced, S = 2048",
                    .force_avx2 = true,
                    .beside = kPlain});
}

// ---- decode
// ----------------------------------------------------------------------------------------------------------

void add_decode(std::vector<BenchCase> &list) {
    auto reading = [&list](const Case &c, const std::string &title) {
        list.push_back({.problem = c, .title = title, .work = Work::kReading});
    };
    constexpr int64_t kKeys = 8192;
    for (int64_t keys : {512, 1024, 2048, 8192, 32768}) {
        std::string text = std::to_string(keys);
        reading(decode("decode_k" + text, keys), text + " keys");
    }
    reading(with(decode("decode_group8_k8192", kKeys), [](Case &c) { c.query_heads = 64; }), "Hq = 64, 8192 keys");
    reading(with(decode("decode_mqa64_k8192", kKeys),
                 [](Case &c) {
                     c.query_heads = 64;
                     c.kv_heads = 1;
                 }),
            "Hq = 64, Hkv = 1, 8192 keys");
    reading(with(decode("decode_d80_k8192", kKeys), kHeadDim(80)), "D = 80, 8192 keys");
    // Multi-head latent attention (DeepSeek-V2, 2024) with its projections absorbed, which is arithmetic.
    list.push_back({with(decode("decode_latent_k8192", kKeys),
                         [](Case &c) {
                             c.kv_heads = 1;
                             c.key_dim = 576;
                             c.value_dim = 512;
                         }),
                    "latent attention: Hkv = 1, D = 576 and 512, 8192 keys"});
    reading(attention("decode_rows8_k8192", 8, kKeys), "8 rows, 8192 keys");
    reading(attention("decode_rows32_k8192", 32, kKeys), "32 rows, 8192 keys");
    // Speculative decoding: the drafted rows of 8 tokens as a tree.
    list.push_back({.problem = with(attention("decode_tree8_k8192", 8, kKeys),
                                    [](Case &c) {
                                        c.mask = cases::varying("qk");
                                        c.mask_values = cases::MaskValues::kTree;
                                    }),
                    .title = "tree of 8 rows, 8192 keys",
                    .work = Work::kReading,
                    .beside = "decode_rows8_k8192"});
    list.push_back({.problem = with(decode("decode_window1024_k32768", 32768), [](Case &c) { c.window_left = 1023; }),
                    .title = "window 1024, 32768 keys",
                    .work = Work::kReading,
                    .beside = "decode_k1024"});
    list.push_back({.problem = decode("decode_paged16_k8192", kKeys),
                    .title = "pages of 16 keys, 8192 keys",
                    .work = Work::kReading,
                    .beside = "decode_k8192",
                    .page_size = 16});
}

// Lengths whose logarithms are evenly spread from 1 to `longest`.
std::vector<int32_t> log_uniform_lengths(int64_t count, int64_t longest) {
    cases::Random random(64);
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < count; ++b) {
        lengths.push_back(static_cast<int32_t>(std::pow(static_cast<double>(longest), random.uniform()) + 0.5));
    }
    return lengths;
}

void add_serving(std::vector<BenchCase> &list) {
    constexpr int64_t kSequences = 64, kLongest = 8192;
    Case ragged = decode("decode_batch64_ragged", kLongest);
    ragged.batch = kSequences;
    ragged.kv_lengths = log_uniform_lengths(kSequences, kLongest);
    ragged.data = cases::Data::kWithinLengths;
    list.push_back({.problem = ragged, .title = "B = 64, 1 to 8192 keys", .work = Work::kReading});

    Case call = with(decode("call_overhead", 16), [](Case &c) { c.query_heads = c.kv_heads = 1; });
    list.push_back({.problem = call, .title = "one call: 1 head, 16 keys", .work = Work::kCalling});

    Case append = decode("append_64x1", 1024);
    append.batch = kSequences;
    list.push_back({.problem = append, .title = "append 1 token to 64 sequences", .work = Work::kAppending});
}

// ---- other
// -----------------------------------------------------------------------------------------------------------

void add_layouts(std::vector<BenchCase> &list) {
    list.push_back({.problem = with(prefill("bshd_s2048", kUsual), [](Case &c) { c.layout = cases::Layout::kBshd; }),
                    .title = "[B, S, H, D] in memory, S = 2048",
                    .beside = kPlain});
}

// Layers of SmolLM2-135M, the model of ./dev demo.
void add_model_layers(std::vector<BenchCase> &list) {
    auto layer = [](Case &c) {
        c.query_heads = 9;
        c.kv_heads = 3;
        c.key_dim = c.value_dim = 64;
    };
    list.push_back({with(prefill("smollm2_prefill_s1000", 1000), layer), "SmolLM2 layer, S = 1000"});
    list.push_back({.problem = with(decode("smollm2_decode_k1000", 1000), layer),
                    .title = "SmolLM2 layer, 1 row, 1000 keys",
                    .work = Work::kReading});
}

// ---- goals
// -----------------------------------------------------------------------------------------------------------

// By the name of a case. Those that are not here have the default, to be as fast as every peer.
struct GoalRow {
    const char *name;
    Goal goal;
};
constexpr double kOfContiguous = 0.93;  // speed over pages
constexpr GoalRow kGoals[] = {
    {"prefill_s512", {.share = 0.75}},
    {"prefill_s1024", {.share = 0.82}},
    {"prefill_s2048", {.share = 0.88, .onnxruntime = 1.45, .torch = 2.5}},
    {"prefill_s4096", {.share = 0.88, .onnxruntime = 1.45, .torch = 2.5}},
    {"prefill_s8192", {.share = 0.88, .onnxruntime = 1.45, .torch = 2.5}},
    {"prefill_batch8_s256", {.share = 0.75}},
    {"chunk512_over8192", {.share = 0.88}},
    {"dim64_s2048", {.share = 0.80}},
    {"dim256_s2048", {.share = 0.88}},
    {"full_s2048", {.share = 0.88}},
    {"mha_s2048", {.share = 0.88}},
    {"mqa_s2048", {.share = 0.88}},
    {"window256_s4096", {.beside = 1.35 / 8}},  // of a query's keys, about an eighth is in its window
    {"softcap_s2048", {.beside = 1.20}},
    {"sink_s2048", {.beside = 1.02}},
    {"smooth_s2048", {.beside = 1.02}},
    {"bias_hqk_s2048", {.beside = 1.25}},
    {"mask_qk_s2048", {.beside = 1.25}},
    {"mask_hqk_s2048", {.beside = 1.25}},
    {"alibi_s2048", {.beside = 1.08}},
    {"paged16_s2048", {.beside = 1 / kOfContiguous}},
    {"threads2_s2048", {.beside = 1 / 1.95}},
    {"avx2_s2048", {.share = 0.85}},
    {"decode_k512", {.share = 0.75, .torch = 2.0}},
    {"decode_k2048", {.share = 0.75, .torch = 2.0}},
    {"decode_k8192", {.share = 0.97, .torch = 3.0}},
    {"decode_k32768", {.share = 0.97, .torch = 3.0}},
    {"decode_group8_k8192", {.share = 0.95}},
    {"decode_rows8_k8192", {.bound = 1.25}},
    {"decode_rows32_k8192", {.bound = 1.25}},
    {"decode_window1024_k32768", {.beside = 1.1}},
    {"decode_paged16_k8192", {.beside = 1 / kOfContiguous}},
    {"decode_batch64_ragged", {.share = 0.92}},
    {"call_overhead", {.seconds = 5e-6}},
    {"append_64x1", {.share = 0.5}},
};

void set_goals(std::vector<BenchCase> &all) {
    for (const GoalRow &row : kGoals) {
        auto found =
            std::find_if(all.begin(), all.end(), [&](const BenchCase &c) { return c.problem.name == row.name; });
        if (found == all.end()) {
            throw std::logic_error(std::string("a goal for ") + row.name + ", but no case has that name");
        }
        found->goal = row.goal;
    }
}

using Family = void (*)(std::vector<BenchCase> &);

void add(std::vector<BenchCase> &all, Set set, std::initializer_list<Family> families) {
    const size_t first = all.size();
    for (Family family : families) {
        family(all);
    }
    for (size_t i = first; i < all.size(); ++i) {
        all[i].set = set;
    }
}

}  // namespace

const char *set_name(Set set) {
    constexpr const char *kNames[] = {"prefill", "decode", "other"};
    return kNames[static_cast<size_t>(set)];
}

const char *work_name(Work work) {
    constexpr const char *kNames[] = {"arithmetic", "reading", "calling", "appending"};
    return kNames[static_cast<size_t>(work)];
}

const std::vector<BenchCase> &bench_cases() {
    static const std::vector<BenchCase> list = [] {
        std::vector<BenchCase> all;
        add(all, Set::kPrefill, {add_lengths, add_shapes, add_options, add_machine});
        add(all, Set::kDecode, {add_decode, add_serving});
        add(all, Set::kOther, {add_layouts, add_model_layers});
        set_goals(all);
        return all;
    }();
    return list;
}

}  // namespace hattn::bench
