// hattn-bench-unfused: decode in one kernel and in two, over rows, head sizes and groups; see kUsage.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache_lines.h"
#include "measured.h"
#include "number_option.h"

namespace {

using namespace hattn::bench;

constexpr const char *kUsage =
    "usage: hattn-bench-unfused [--threads=N] [--keys=N] [--rounds=N] [--rows=N] [--dim=N] [--group=N] [--traffic]\n"
    "\n"
    "Every problem is verified against the oracle before it is timed. The contestants take turns; times are of the\n"
    "fastest run. Columns: which of split_kv and flash is faster, its time and that of unfused, and what going "
    "through\n"
    "memory with the weights adds:\n"
    "  modelled traffic  share of the weights in all that is moved, rows * Hq / (rows * Hq + Hkv * D): for one row\n"
    "                    1 / (1 + Hkv/Hq * D), weights being written and read once, and so keys and values\n"
    "  measured traffic  with --traffic, share of the lines that unfused moves into the first-level cache beyond "
    "those\n"
    "                    of the fused kernel that moves the fewest, in one execute on one thread, as valgrind's\n"
    "                    cachegrind counts them, which takes minutes\n"
    "  measured time     time of unfused over fused, less 1; negative where unfused is faster\n"
    "--rows, --dim and --group choose: default all of them.\n"
    "\n"
    "  hattn-bench-unfused --execute=ALGORITHM --times=N --rows=N --dim=N --group=N [--keys=N]\n"
    "\n"
    "executes and does nothing else: what --traffic counts.\n";

struct Options {
    int threads = 0;  // 0: one per core
    int keys = 4096;
    int rounds = 9;
    int rows = 0, dim = 0, group = 0;  // 0: all
    int times = 0;
    bool traffic = false, help = false;
    std::string execute, program;
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

// On one thread.
void execute(const Options &options) {
    BenchCase problem = decode(options, options.rows, options.dim, options.group);
    problem.algorithm = options.execute;
    const std::unique_ptr<Measured> contestant = measured(problem, 1);
    for (int time = 0; time < options.times; ++time) {
        contestant->run();
    }
}

// Of an execute that another one has gone before.
double lines_of_execute(const Options &options, const char *algorithm, int rows, int dim, int group) {
    const auto lines = [&](int times) {
        return missed_lines({options.program, std::string("--execute=") + algorithm, "--times=" + std::to_string(times),
                             "--rows=" + std::to_string(rows), "--dim=" + std::to_string(dim),
                             "--group=" + std::to_string(group), "--keys=" + std::to_string(options.keys)});
    };
    const double once = lines(1);
    return lines(2) - once;
}

// "12.3%", or "-" if nobody asks.
std::string measured_traffic(const Options &options, int rows, int dim, int group) {
    if (!options.traffic) {
        return "-";
    }
    const auto lines = [&](const char *algorithm) { return lines_of_execute(options, algorithm, rows, dim, group); };
    const double of_fused = std::min(lines("split_kv"), lines("flash")), of_unfused = lines("unfused");
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f%%", 100.0 * (1.0 - of_fused / of_unfused));
    return text;
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
    std::printf("| %2d | %3d | %d | %8s | %8.3f | %8.3f | %15.1f%% | %16s | %+12.1f%% |\n", rows, dim, group,
                algorithms[fused], seconds[fused] * 1e3, seconds[2] * 1e3, 100.0 * weights / (weights + dim),
                measured_traffic(options, rows, dim, group).c_str(),
                100.0 * (seconds[2] / seconds[fused] - 1.0));
    std::fflush(stdout);
}

Options parse_options(int argc, char **argv) {
    constexpr int64_t kMost = 1 << 20;
    Options options;
    options.program = argv[0];
    const struct {
        std::string prefix;
        int *value;
    } numbers[] = {{"--threads=", &options.threads}, {"--keys=", &options.keys}, {"--rounds=", &options.rounds},
                   {"--rows=", &options.rows},       {"--dim=", &options.dim},   {"--group=", &options.group},
                   {"--times=", &options.times}};
    const std::string kExecute = "--execute=";
    for (int a = 1; a < argc; ++a) {
        const std::string argument = argv[a];
        bool found = argument == "--traffic" || argument == "--help";
        options.traffic = options.traffic || argument == "--traffic";
        options.help = options.help || argument == "--help";
        if (argument.starts_with(kExecute)) {
            options.execute = argument.substr(kExecute.size());
            found = true;
        }
        for (const auto &[prefix, value] : numbers) {
            if (argument.starts_with(prefix)) {
                *value = static_cast<int>(
                    whole_number_option(prefix.substr(0, prefix.size() - 1), argv[a] + prefix.size(), kMost));
                found = true;
            }
        }
        if (!found) {
            throw std::invalid_argument("unknown argument \"" + argument + "\"; see --help");
        }
    }
    if (!options.execute.empty()) {
        if (options.execute != "split_kv" && options.execute != "flash" && options.execute != "unfused") {
            refuse_option("--execute", options.execute, "split_kv, flash or unfused");
        }
        if (options.times == 0 || options.rows == 0 || options.dim == 0 || options.group == 0) {
            throw std::invalid_argument("--execute: needs --times, --rows, --dim and --group");
        }
    }
    return options;
}

// Those of a list that are asked for.
std::vector<int> asked_for(int one, std::vector<int> all) {
    return one > 0 ? std::vector<int>{one} : all;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const Options options = parse_options(argc, argv);
        if (options.help) {
            std::fputs(kUsage, stdout);
            return 0;
        }
        if (!options.execute.empty()) {
            execute(options);
            return 0;
        }
        std::printf("B1 Hkv%d causal, %d keys, float32\n\n", kKvHeads, options.keys);
        std::printf("| rows | D | Hq/Hkv | fused is | fused ms | unfused ms | modelled traffic | measured traffic | "
                    "measured time |\n"
                    "|---|---|---|---|---|---|---|---|---|\n");
        for (int rows : asked_for(options.rows, {1, 2, 4, 8, 16, 32})) {
            for (int dim : asked_for(options.dim, {64, 128})) {
                for (int group : asked_for(options.group, {1, 4, 8})) {
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
