// hattn-bench: every benchmark case through the C++ interface, under Google Benchmark.
//
//     hattn-bench [--threads=N] [--verify=false] [--benchmark_...]
//
// A case is verified against the oracle before anything is timed, plan and workspace are reused, and the machine's
// limits are measured between the runs of the case. Counters are of the fastest run: noise of a shared machine only
// adds time.
//     seconds    of the fastest run
//     flops      floating-point operations per second, counting only keys that a query sees
//     fma_peak   what the same threads reach in registers, in the same run; fma_share is flops / fma_peak
//     kv_read    bytes of k and v per second (decode only)
//     read_peak  what the same threads reach when they only read the same k and v; read_share is kv_read / read_peak
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "measured_case.h"

namespace {

using namespace hattn::bench;

struct Options {
    int threads = 0;  // 0: one per core
    bool verify = true;
};

class Runner {
public:
    explicit Runner(const Options &options) : options_(options), context_(context_desc(options)) {}

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
    static hattn::ContextDesc context_desc(const Options &options) {
        hattn::ContextDesc desc;
        desc.threads = options.threads;
        return desc;
    }

    // Google Benchmark calls several times for a case; only the case at hand stays in memory.
    MeasuredCase &prepare(const BenchCase &bench_case) {
        if (!current_ || current_->name() != bench_case.problem.name) {
            current_.reset();
            auto next = std::make_unique<MeasuredCase>(context_, bench_case);
            std::string wrong = options_.verify ? next->check() : "";
            if (!wrong.empty()) {
                throw std::runtime_error(next->kernel() + ": " + wrong);
            }
            current_ = std::move(next);
        }
        return *current_;
    }

    static void measure(benchmark::State &state, MeasuredCase &c) {
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
        state.SetLabel(c.kernel());
        state.counters["seconds"] = c.best_seconds();
        state.counters["threads"] = c.threads();
        state.counters["flops"] = c.flops_per_second();
        state.counters["fma_peak"] = c.peak_flops();
        state.counters["fma_share"] = c.flops_per_second() / c.peak_flops();
        if (c.bound() == Bound::kReading) {
            state.counters["kv_read"] = c.read_per_second();
            state.counters["read_peak"] = c.peak_read();
            state.counters["read_share"] = c.read_per_second() / c.peak_read();
        }
    }

    Options options_;
    hattn::Context context_;
    std::unique_ptr<MeasuredCase> current_;
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

int positive(const std::string &text) {
    char *end = nullptr;
    long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || value < 1 || value > 1024) {
        refuse("--threads: is \"" + text + "\", but must be a number from 1 to 1024");
    }
    return static_cast<int>(value);
}

// Takes our own options out of argv and leaves the others to Google Benchmark.
Options parse_options(int &argc, char **argv) {
    Options options;
    int kept = 1;
    for (int a = 1; a < argc; ++a) {
        std::string value;
        if (starts_with(argv[a], "--threads=", value)) {
            options.threads = positive(value);
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
