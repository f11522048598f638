// hattn-bench-unfused: decode in one kernel and in two, over rows, head sizes and groups.
//
//     hattn-bench-unfused [--threads=N] [--keys=N] [--rounds=N]
//
// Every problem is verified against the oracle before it is timed. The contestants take turns; times are of the fastest
// run. Columns: which of split_kv and flash is faster, its time and that of unfused, and what going through memory with
// the weights adds:
//     modelled traffic    share of the weights in all that is moved, rows * Hq / (rows * Hq + Hkv * D): for one row
//                         1 / (1 + Hkv/Hq * D), weights being written and read once, and so keys and values
//     measured time       time of unfused over fused, less 1; negative where unfused is faster. No traffic is measured
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "measured.h"
#include "number_option.h"

namespace {

using namespace hattn::bench;

struct Options {
    int threads = 0;  // 0: one per core
    int keys = 4096;
    int rounds = 9;
};

constexpr int kKvHeads = 4;

BenchCase decode(const Options &options, int rows, int dim, int group) {
    BenchCase c;
    c.problem.name = "rows" + std::to_string(rows) + "_d" + std::to_string(dim) + "_group" + std::to_string(group);
    c.problem.batch = 1;
    c.problem.kv_heads = kKvHeads;
    c.problem.query_heads = kKvHeads * group;
    c.problem.query_length = rows;
    c.problem.kv_length = options.keys;
    c.problem.key_dim = c.problem.value_dim = dim;
    c.problem.causal = true;
    c.problem.lse = false;
    c.work = Work::kCalling;
    return c;
}

std::unique_ptr<Measured> verified(const BenchCase &bench_case, int threads) {
    std::unique_ptr<Measured> made = measured(bench_case, threads);
    if (std::string wrong = made->check(); !wrong.empty()) {
        throw std::runtime_error(bench_case.problem.name + ", " + made->label() + ": " + wrong);
    }
    return made;
}

void compare(const Options &options, int rows, int dim, int group) {
    BenchCase problem = decode(options, rows, dim, group);
    std::array<std::unique_ptr<Measured>, 3> contestants;
    const char *algorithms[] = {"split_kv", "flash", "unfused"};
    for (size_t i = 0; i < contestants.size(); ++i) {
        problem.algorithm = algorithms[i];
        contestants[i] = verified(problem, options.threads);
    }
    for (int round = 0; round < options.rounds; ++round) {
        for (const auto &contestant : contestants) {
            contestant->run();
        }
    }
    double seconds[3];
    for (size_t i = 0; i < contestants.size(); ++i) {
        seconds[i] = contestants[i]->figures().seconds;
    }
    const size_t fused = seconds[0] <= seconds[1] ? 0 : 1;
    const double weights = static_cast<double>(rows) * group;
    std::printf("| %2d | %3d | %d | %8s | %8.3f | %8.3f | %15.1f%% | %+12.1f%% |\n", rows, dim, group,
                algorithms[fused], seconds[fused] * 1e3, seconds[2] * 1e3, 100.0 * weights / (weights + dim),
                100.0 * (seconds[2] / seconds[fused] - 1.0));
    std::fflush(stdout);
}

Options parse_options(int argc, char **argv) {
    constexpr int64_t kMost = 1 << 20;
    Options options;
    const struct {
        std::string prefix;
        int *value;
    } known[] = {{"--threads=", &options.threads}, {"--keys=", &options.keys}, {"--rounds=", &options.rounds}};
    for (int a = 1; a < argc; ++a) {
        const std::string argument = argv[a];
        bool found = false;
        for (const auto &[prefix, value] : known) {
            if (argument.starts_with(prefix)) {
                *value = static_cast<int>(
                    whole_number_option(prefix.substr(0, prefix.size() - 1), argv[a] + prefix.size(), kMost));
                found = true;
            }
        }
        if (!found) {
            throw std::invalid_argument("unknown argument \"" + argument +
                                        "\"; usage: hattn-bench-unfused [--threads=N] [--keys=N] [--rounds=N]");
        }
    }
    return options;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const Options options = parse_options(argc, argv);
        std::printf("B1 Hkv%d causal, %d keys, float32\n\n", kKvHeads, options.keys);
        std::printf("| rows | D | Hq/Hkv | fused is | fused ms | unfused ms | modelled traffic | measured time |\n"
                    "|---|---|---|---|---|---|---|---|\n");
        for (int rows : {1, 2, 4, 8, 16, 32}) {
            for (int dim : {64, 128}) {
                for (int group : {1, 4, 8}) {
                    compare(options, rows, dim, group);
                }
            }
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "hattn-bench-unfused: %s\n", error.what());
        return 1;
    }
    return 0;
}
