#include "builds_options.h"

#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <utility>

#include "bench_cases.h"
#include "hooks_option.h"
#include "number_option.h"

namespace hattn::bench {

namespace {

constexpr const char *kUsage =
    R"(usage: hattn-bench-builds [OPTION]... BUILD[+PACKS][@FORCE] BUILD[+PACKS][@FORCE]...

BUILD is the library as a shared object, which the target hattn_snapshot makes: keep a copy, change something, make it
again. PACKS and FORCE are what HATTN_PACKS and HATTN_FORCE are for it, so that a build may be held against itself with
another kernel.

  --filter=REGEX  benchmark cases in whose name it occurs
  --shape=SHAPE   a causal problem, BxHqxHkvxSqxSkxD, e.g. 1x16x8x512x512x128; both may be repeated
  --hooks=LIST    of them, beside what cases have: softcap, bias, alibi, mask, sink; bias and mask are [1, 1, Sq, Skv]
  --keys=TYPE     of keys and values: float32 (the default), float16, bfloat16, int8 or int4; queries and outputs of 16 bits
                  have the type too
  --scales=KIND   of int8 and int4: keys (the default), one for each 32 elements, or heads, one for each kv head
  --layout=LAYOUT of all of them in memory: bhsd (the default), or bshd, a token's heads side by side
  --pages=N       float32 keys and values in pages of so many, 16, 32, 64 or 128, in no order; default: not in pages
  --threads=N     default: 2
  --seconds=S     for each case, default: 2

Prints a Markdown table: the time of the first build, and of each other one its time over that, of the fastest calls and
as the median over turns, whether outputs have the same bits, and the kernel, if it is another. A build given twice says
what the figures are worth. That results are right is for the tests to see.
)";

cases::Case shaped(const std::string &shape) {
    static const std::regex pattern("([1-9][0-9]{0,5})(x[1-9][0-9]{0,5}){5}");
    if (!std::regex_match(shape, pattern)) {
        refuse_option("--shape", shape, "BxHqxHkvxSqxSkxD, e.g. 1x16x8x512x512x128");
    }
    std::vector<int64_t> extents;
    for (const char *at = shape.c_str(); *at != '\0';) {
        char *end = nullptr;
        extents.push_back(std::strtoll(at, &end, 10));
        at = *end == 'x' ? end + 1 : end;
    }
    cases::Case c;
    c.name = shape;
    c.batch = extents[0];
    c.query_heads = extents[1];
    c.kv_heads = extents[2];
    c.query_length = extents[3];
    c.kv_length = extents[4];
    c.key_dim = c.value_dim = extents[5];
    c.causal = true;
    c.lse = false;
    return c;
}

// What a build can be asked for by a problem alone.
void add_cases(const std::string &filter, std::vector<cases::Case> &list) {
    std::regex pattern;
    try {
        pattern.assign(filter);
    } catch (const std::regex_error &error) {
        refuse_option("--filter", filter, std::string("a regular expression (") + error.what() + ")");
    }
    const size_t before = list.size();
    for (const BenchCase &c : bench_cases()) {
        const bool plain = c.work != Work::kAppending && c.page_size == 0 && !c.force_avx2 && c.threads == 0 &&
                           c.algorithm.empty() && c.problem.layout == cases::Layout::kBhsd;
        if (plain && std::regex_search(c.problem.name, pattern)) {
            list.push_back(c.problem);
        }
    }
    if (list.size() == before) {
        refuse_option("--filter", filter, "a regular expression that occurs in the name of a case");
    }
}

template<typename Value, size_t kCount>
Named<Value> named(const char *option, const std::string &name, const Named<Value> (&known)[kCount],
                   const char *expected) {
    const auto *found = std::ranges::find(known, name, &Named<Value>::name);
    if (found == std::end(known)) {
        refuse_option(option, name, expected);
    }
    return *found;
}

Named<hattn_dtype> keys_named(const std::string &name) {
    static constexpr Named<hattn_dtype> kKnown[] = {{"float32", HATTN_FLOAT32},
                                                    {"float16", HATTN_FLOAT16},
                                                    {"bfloat16", HATTN_BFLOAT16},
                                                    {"int8", HATTN_INT8},
                                                    {"int4", HATTN_INT4}};
    return named("--keys", name, kKnown, "one of float32, float16, bfloat16, int8, int4");
}

Named<Scales> scales_named(const std::string &name) {
    static constexpr Named<Scales> kKnown[] = {{"keys", Scales::kKeys}, {"heads", Scales::kHeads}};
    return named("--scales", name, kKnown, "keys or heads");
}

Named<cases::Layout> layout_named(const std::string &name) {
    static constexpr Named<cases::Layout> kKnown[] = {{"bhsd", cases::Layout::kBhsd}, {"bshd", cases::Layout::kBshd}};
    return named("--layout", name, kKnown, "bhsd or bshd");
}

int64_t page_size_named(const std::string &name) {
    static constexpr Named<int64_t> kKnown[] = {{"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}};
    return named("--pages", name, kKnown, "16, 32, 64 or 128").value;
}

// Of all of them together.
void check_options(const BuildsOptions &options) {
    if (options.builds.size() < 2) {
        throw std::invalid_argument("BUILD: there are " + std::to_string(options.builds.size()) +
                                    ", but must be 2 or more");
    }
    if (options.cases.empty()) {
        throw std::invalid_argument("neither --filter nor --shape says what to measure");
    }
    if (options.scales.name != BuildsOptions().scales.name && options.keys.value != HATTN_INT8 &&
        options.keys.value != HATTN_INT4) {
        refuse_option("--keys", options.keys.name, "int8 or int4 with --scales");
    }
    if (options.page_size > 0 && options.keys.value != HATTN_FLOAT32) {
        refuse_option("--keys", options.keys.name, "float32 with --pages");
    }
    if (options.page_size > 0 && options.layout.value != cases::Layout::kBhsd) {
        refuse_option("--layout", options.layout.name, "bhsd with --pages");
    }
}

}  // namespace

BuildsOptions parse_builds_options(int argc, char **argv) {
    BuildsOptions options;
    std::string hooks;
    const option known[] = {{"filter", required_argument, nullptr, 'f'},
                            {"shape", required_argument, nullptr, 's'},
                            {"hooks", required_argument, nullptr, 'o'},
                            {"keys", required_argument, nullptr, 'k'},
                            {"layout", required_argument, nullptr, 'l'},
                            {"pages", required_argument, nullptr, 'p'},
                            {"scales", required_argument, nullptr, 'c'},
                            {"threads", required_argument, nullptr, 't'},
                            {"seconds", required_argument, nullptr, 'e'},
                            {"help", no_argument, nullptr, 'h'},
                            {nullptr, 0, nullptr, 0}};
    for (int found; (found = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (found) {
        case 'f':
            add_cases(optarg, options.cases);
            break;
        case 's':
            options.cases.push_back(shaped(optarg));
            break;
        case 'o':
            hooks = optarg;
            break;
        case 'k':
            options.keys = keys_named(optarg);
            break;
        case 'c':
            options.scales = scales_named(optarg);
            break;
        case 'l':
            options.layout = layout_named(optarg);
            break;
        case 'p':
            options.page_size = page_size_named(optarg);
            break;
        case 't':
            options.threads = static_cast<int>(whole_number_option("--threads", optarg, 1024));
            break;
        case 'e':
            options.seconds = number_option("--seconds", optarg, 0.0, 3600.0);
            break;
        case 'h':
            std::fputs(kUsage, stdout);
            std::exit(0);
        default:
            throw std::invalid_argument("see --help");  // getopt has said why
        }
    }
    options.builds.assign(argv + optind, argv + argc);
    check_options(options);
    for (cases::Case &c : options.cases) {
        c.layout = options.layout.value;
        set_hooks(c, hooks);
    }
    return options;
}

}  // namespace hattn::bench
