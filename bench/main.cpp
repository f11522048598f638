// hattn-bench: every benchmark case through the C++ interface, under Google Benchmark.
//
//     hattn-bench [--threads=N] [--verify=false] [--benchmark_...]
//
// A case is verified against the oracle before anything is timed, plan and workspace are reused, and the machine's
// limits are measured between the runs of the case. Counters are of the fastest run: noise of a shared machine only
// adds time.
//     seconds     of the fastest run
//     speed       operations or bytes per second, counting only keys that a query sees
//     limit       what the machine reaches at best, in the same run: see Work in bench_cases.h
//     share       speed / limit
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include <benchmark/benchmark.h>

#include "measured.h"
#include "number_option.h"

namespace {

using namespace hattn::bench;

struct Options {
    int threads = 0;  // 0: one per core
    bool verify = true;
};

class Runner {
public:
    explicit Runner(const Options &options) : options_(options) {}

    void operator()(benchmark::State &state, const BenchCase &bench_case) {
        try {
            measure(state, prepare(bench_case));
        } catch (const std::exception &error) {
            failed_ = true;
            state.SkipWithError(error.what());
        }
    }

    bool failed() const {
        return failed_;
    }

private:
    // Google Benchmark calls several times for a case; only the case at hand stays in memory.
    Measured &prepare(const BenchCase &bench_case) {
        if (name_ != bench_case.problem.name) {
            current_.reset();
            auto next = measured(bench_case, options_.threads);
            std::string wrong = options_.verify ? next->check() : "";
            if (!wrong.empty()) {
                throw std::runtime_error(next->label() + ": " + wrong);
            }
            current_ = std::move(next);
            name_ = bench_case.problem.name;
        }
        return *current_;
    }

    static void measure(benchmark::State &state, Measured &c) {
        c.measure_limits();
        double since_limits = 0.0;
        for (auto _ : state) {
            double seconds = c.run();
            state.SetIterationTime(seconds);
            since_limits += seconds;
            constexpr double kBetweenLimits = 0.05;  // seconds
            if (since_limits > kBetweenLimits) {
                c.measure_limits();
                since_limits = 0.0;
            }
        }
        c.measure_limits();
        state.SetLabel(c.label());
        Figures figures = c.figures();
        state.counters["seconds"] = figures.seconds;
        state.counters["threads"] = c.threads();
        state.counters["speed"] = figures.speed;
        if (figures.limit > 0.0) {
            state.counters["limit"] = figures.limit;
            state.counters["share"] = figures.speed / figures.limit;
        }
    }

    Options options_;
    std::string name_;  // of the case at hand
    std::unique_ptr<Measured> current_;
    bool failed_ = false;
};

bool starts_with(const std::string &text, const std::string &prefix, std::string &rest) {
    if (text.compare(0, prefix.size(), prefix) != 0) {
        return false;
    }
    rest = text.substr(prefix.size());
    return true;
}

[[noreturn]] void refuse(const std::string &message) {
    std::fprintf(stderr, "hattn-bench: %s\n", message.c_str());
    std::exit(2);
}

int threads_of(const std::string &text) {
    try {
        return static_cast<int>(whole_number_option("--threads", text, 1024));
    } catch (const std::invalid_argument &error) {
        refuse(error.what());
    }
}

// Takes our own options out of argv and leaves the others to Google Benchmark.
Options parse_options(int &argc, char **argv) {
    Options options;
    int kept = 1;
    for (int a = 1; a < argc; ++a) {
        std::string value;
        if (starts_with(argv[a], "--threads=", value)) {
            options.threads = threads_of(value);
        } else if (starts_with(argv[a], "--verify=", value)) {
            if (value != "true" && value != "false") {
                refuse("--verify: is \"" + value + "\", but must be true or false");
            }
            options.verify = value == "true";
        } else {
            argv[kept++] = argv[a];
        }
    }
    argc = kept;
    return options;
}

int run(int argc, char **argv) {
    Runner runner(parse_options(argc, argv));
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 2;
    }
    benchmark::AddCustomContext("hattn_version", hattn::version());
    for (const BenchCase &bench_case : bench_cases()) {
        if (!why_not(bench_case).empty()) {
            continue;
        }
        auto body = [&runner, &bench_case](benchmark::State &state) { runner(state, bench_case); };
        benchmark::RegisterBenchmark(bench_case.problem.name.c_str(), body)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
    }
    if (benchmark::RunSpecifiedBenchmarks() == 0) {
        refuse("no case matches the filter");
    }
    benchmark::Shutdown();
    return runner.failed() ? 1 : 0;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        refuse(error.what());
    }
}
