// hattn-bench-builds: builds of the library beside each other, call by call in turn in one process. See kUsage.
//
// Inputs, output and workspace are the same memory for all builds: where they lie is worth some percent.
#include <getopt.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench_cases.h"
#include "compared_problem.h"
#include "loaded_build.h"
#include "number_option.h"
#include "statistics.h"
#include "stopwatch.h"
#include "tensor_data.h"

namespace {

using namespace hattn;
using namespace hattn::bench;

constexpr const char *kUsage =
    R"(usage: hattn-bench-builds [OPTION]... BUILD[+PACKS][@FORCE] BUILD[+PACKS][@FORCE]...

BUILD is the library as a shared object, which the target hattn_snapshot makes: keep a copy, change something, make it
again. PACKS and FORCE are what HATTN_PACKS and HATTN_FORCE are for it, so that a build may be held against itself with
another kernel.

  --filter=REGEX  benchmark cases in whose name it occurs
  --shape=SHAPE   a causal problem, BxHqxHkvxSqxSkxD, e.g. 1x16x8x512x512x128; both may be repeated
  --keys=TYPE     of keys and values: float32 (the default), float16, bfloat16, int8 or int4; queries and outputs of 16 bits
                  have the type too
  --scales=KIND   of int8 and int4: keys (the default), one for each 32 elements, or heads, one for each kv head
  --layout=LAYOUT of all of them in memory: bhsd (the default), or bshd, a token's heads side by side
  --threads=N     default: 2
  --seconds=S     for each case, default: 2

Prints a Markdown table: the time of the first build, and of each other one its time over that, of the fastest calls and
as the median over turns, whether outputs have the same bits, and the kernel, if it is another. A build given twice says
what the figures are worth. That results are right is for the tests to see.
)";

struct KeyType {
    const char *name;
    hattn_dtype type;
};
constexpr KeyType kKeyTypes[] = {{"float32", HATTN_FLOAT32},
                                 {"float16", HATTN_FLOAT16},
                                 {"bfloat16", HATTN_BFLOAT16},
                                 {"int8", HATTN_INT8},
                                 {"int4", HATTN_INT4}};

struct NamedLayout {
    const char *name;
    cases::Layout layout;
};
constexpr NamedLayout kBhsd = {"bhsd", cases::Layout::kBhsd}, kBshd = {"bshd", cases::Layout::kBshd};

struct NamedScales {
    const char *name;
    Scales scales;
};
constexpr NamedScales kOfKeys = {"keys", Scales::kKeys}, kOfHeads = {"heads", Scales::kHeads};

struct Options {
    std::vector<cases::Case> cases;
    KeyType keys = kKeyTypes[0];
    NamedScales scales = kOfKeys;
    NamedLayout layout = kBhsd;
    int threads = 2;
    double seconds = 2.0;
    std::vector<std::string> builds;
};

// "same bits", or the largest difference.
std::string difference(const std::vector<double> &a, const std::vector<double> &b) {
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0) {
        return "same bits";
    }
    double most = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i]) != std::isnan(b[i])) {
            return "differ by nan";
        }
        most = std::max(most, std::fabs(a[i] - b[i]));
    }
    char text[32];
    std::snprintf(text, sizeof(text), "differ by %.1e", most);
    return text;
}

using Builds = std::vector<std::unique_ptr<LoadedBuild>>;

// Seconds of each build's calls, turn by turn.
std::vector<std::vector<double>> take_turns(const Builds &builds, const hattn_attention_args &args, double seconds) {
    constexpr size_t kLeastTurns = 3;
    std::vector<std::vector<double>> times(builds.size());
    std::vector<size_t> order(builds.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(1);
    const Stopwatch all;
    while (times[0].size() < kLeastTurns || all.seconds() < seconds) {
        std::shuffle(order.begin(), order.end(), random);
        for (const size_t build : order) {
            const Stopwatch watch;
            builds[build]->execute(args);
            times[build].push_back(watch.seconds());
        }
    }
    return times;
}

void compare(const Builds &builds, const cases::Case &c, const Options &options) {
    ComparedProblem problem(c, options.keys.type, options.scales.scales);
    size_t most = 0;
    for (const auto &build : builds) {
        build->plan(problem.desc);
        most = std::max(most, build->workspace_size());
    }
    cases::Storage workspace(most);
    problem.args.workspace = workspace.data();
    problem.args.workspace_size = workspace.size();

    std::vector<std::vector<double>> outputs;
    for (const auto &build : builds) {
        build->execute(problem.args);
        outputs.push_back(problem.output());
    }
    const std::vector<std::vector<double>> times = take_turns(builds, problem.args, options.seconds);
    const auto fastest = [&](size_t build) { return *std::ranges::min_element(times[build]); };
    std::printf("| %s | %s | %.4g ms |", c.name.c_str(), builds[0]->kernel().c_str(), fastest(0) * 1e3);
    for (size_t build = 1; build < builds.size(); ++build) {
        std::vector<double> ratios;
        for (size_t turn = 0; turn < times[build].size(); ++turn) {
            ratios.push_back(times[build][turn] / times[0][turn]);
        }
        const std::string kernel = builds[build]->kernel();
        std::printf(" %.3f, %.3f, %s%s |", fastest(build) / fastest(0), autotune::median(std::move(ratios)),
                    difference(outputs[0], outputs[build]).c_str(),
                    kernel == builds[0]->kernel() ? "" : (", by " + kernel).c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
}

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

NamedLayout layout_of(const std::string &name) {
    for (const NamedLayout &known : {kBhsd, kBshd}) {
        if (name == known.name) {
            return known;
        }
    }
    refuse_option("--layout", name, "bhsd or bshd");
}

NamedScales scales_of(const std::string &name) {
    for (const NamedScales &known : {kOfKeys, kOfHeads}) {
        if (name == known.name) {
            return known;
        }
    }
    refuse_option("--scales", name, "keys or heads");
}

KeyType key_type(const std::string &name) {
    std::string names;
    for (const KeyType &type : kKeyTypes) {
        if (name == type.name) {
            return type;
        }
        names += (names.empty() ? "" : ", ") + std::string(type.name);
    }
    refuse_option("--keys", name, "one of " + names);
}

Options parse_options(int argc, char **argv) {
    Options options;
    const option known[] = {{"filter", required_argument, nullptr, 'f'},
                            {"shape", required_argument, nullptr, 's'},
                            {"keys", required_argument, nullptr, 'k'},
                            {"layout", required_argument, nullptr, 'l'},
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
        case 'k':
            options.keys = key_type(optarg);
            break;
        case 'c':
            options.scales = scales_of(optarg);
            break;
        case 'l':
            options.layout = layout_of(optarg);
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
    if (options.builds.size() < 2) {
        throw std::invalid_argument("BUILD: there are " + std::to_string(options.builds.size()) +
                                    ", but must be 2 or more");
    }
    if (options.cases.empty()) {
        throw std::invalid_argument("neither --filter nor --shape says what to measure");
    }
    for (cases::Case &c : options.cases) {
        c.layout = options.layout.layout;
    }
    return options;
}

// What stands before a place in a text, and what behind it.
std::pair<std::string, std::string> parted(const std::string &text, size_t place) {
    return {text.substr(0, place), place == std::string::npos ? "" : text.substr(place + 1)};
}

Builds load_builds(const Options &options) {
    Builds builds;
    for (const std::string &build : options.builds) {
        const auto [files, force] = parted(build, build.find('@'));
        // Of a file whose own name has a plus nothing is cut off.
        const size_t plus = std::filesystem::exists(files) ? std::string::npos : files.rfind('+');
        const auto [file, packs] = parted(files, plus);
        builds.push_back(std::make_unique<LoadedBuild>(file, packs, force, options.threads));
    }
    return builds;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const Options options = parse_options(argc, argv);
        const Builds builds = load_builds(options);
        std::printf("threads: %d, keys and values: %s, %s\n\n| case | kernel | %s |", options.threads,
                    options.keys.name, options.layout.name, builds[0]->name().c_str());
        for (size_t build = 1; build < builds.size(); ++build) {
            std::printf(" %s |", builds[build]->name().c_str());
        }
        std::printf("\n|---|---|---|");
        for (size_t build = 1; build < builds.size(); ++build) {
            std::printf("---|");
        }
        std::printf("\n");
        for (const cases::Case &c : options.cases) {
            compare(builds, c, options);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "hattn-bench-builds: %s\n", error.what());
        return 1;
    }
    return 0;
}
