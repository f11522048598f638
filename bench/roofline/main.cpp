// hattn-roofline: where the time of one attention kernel goes, stage by stage, and what share of the machine's peak of
// multiply-adds each reaches. Halide compiles the kernel twice, as it is and with its sampling profiler, and the
// library's own planner calls it, on one thread. See options.cpp for the command line.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <nlohmann/json.hpp>

#include "kernel_table.h"
#include "measured.h"
#include "options.h"
#include "stages.h"
#include "stopwatch.h"
#include "work.h"

namespace hattn::roofline {

namespace {

using bench::Figures;

struct Result {
    std::string kernel;
    Figures plain, profiled;
    std::vector<StageTime> stages;  // of one run
    double scores;                  // computed in one run
    int samples;
};

void force(const std::string &word) {
    setenv("HATTN_FORCE", word.c_str(), 1);
}

std::string chosen_kernel(const bench::BenchCase &bench_case) {
    const std::string label = bench::measured(bench_case, 1)->label();  // "algorithm kernel"
    return label.substr(label.find(' ') + 1);
}

// The kernel to look at: named, of a tile, or the planner's.
NamedSpec choose(const Options &options, const bench::BenchCase &bench_case) {
    if (!options.target.empty()) {
        force("target=" + options.target);
    }
    std::string name = options.kernel;
    if (name.empty()) {
        name = chosen_kernel(bench_case);
    }
    NamedSpec chosen = find_spec(name);
    if (chosen.spec.kind == KernelKind::kUnfusedScores || chosen.spec.kind == KernelKind::kUnfusedValues) {
        throw std::invalid_argument("--kernel: \"" + name + "\" is one of two that only together compute attention");
    }
    if (options.tile) {
        chosen.spec.kind = KernelKind::kFlash;
        chosen.spec.tile = *options.tile;
        add_kernel(chosen.spec, chosen.target);
        name = chosen.spec.name(chosen.target);
    }
    force("kernel=" + name);
    return chosen;
}

void run_for(bench::Measured &measured, double seconds) {
    bench::Stopwatch watch;
    do {
        measured.run();
    } while (watch.seconds() < seconds);
}

// Of the kernel as it is, after a check.
Figures measure_plain(const bench::BenchCase &bench_case, double seconds) {
    const auto measured = bench::measured(bench_case, 1);
    const std::string wrong = measured->check();
    if (!wrong.empty()) {
        throw std::runtime_error("wrong result: " + wrong);
    }
    constexpr int kParts = 8;
    for (int part = 0; part < kParts; ++part) {
        measured->measure_limits();
        run_for(*measured, seconds / kParts);
    }
    return measured->figures();
}

Result measure(const Options &options, const std::filesystem::path &folder) {
    constexpr int kSampleEvery = 100;  // microseconds
    const bench::BenchCase bench_case = {options.problem, "roofline"};
    const NamedSpec chosen = choose(options, bench_case);
    const CompiledKernel merge({.kind = KernelKind::kMerge, .tile = {}}, chosen.target, false, folder);
    const CompiledKernel plain(chosen.spec, chosen.target, false, folder);
    CompiledKernel profiled(chosen.spec, chosen.target, true, folder);
    Result result;
    result.kernel = chosen.spec.name(chosen.target);
    install(plain.function(), merge.function());
    result.plain = measure_plain(bench_case, options.seconds);

    install(profiled.function(), merge.function());
    const auto measured = bench::measured(bench_case, 1);
    measured->run();
    profiled.start_profile(kSampleEvery);
    run_for(*measured, options.seconds);
    const Profile profile = profiled.profile();
    result.profiled = measured->figures();
    result.samples = profile.samples;

    const bool tiles = chosen.spec.kind != KernelKind::kSplitKv;
    const auto dims = static_cast<double>(options.problem.key_dim + options.problem.value_dim);
    const double visible_scores = bench::visible_flops(options.problem) / (2.0 * dims);
    result.scores = tiles ? computed_scores(options.problem, chosen.spec) : visible_scores;
    result.stages = stage_times(profile.funcs, 2.0 * result.scores * static_cast<double>(options.problem.key_dim),
                                2.0 * result.scores * static_cast<double>(options.problem.value_dim));
    // Shares of the profile, laid over the time of the kernel as it is.
    double total = 0.0;
    for (const StageTime &stage : result.stages) {
        total += stage.seconds;
    }
    for (StageTime &stage : result.stages) {
        stage.seconds *= result.plain.seconds / total;
    }
    return result;
}

double profiler_cost(const Result &result) {
    return result.profiled.seconds / result.plain.seconds - 1.0;
}

void print_table(const Result &r) {
    std::printf("%s, one thread; best run %.3f ms, %.1f GFLOP/s over visible keys, %.1f%% of the peak\n",
                r.kernel.c_str(), r.plain.seconds * 1e3, r.plain.speed / 1e9, 100.0 * r.plain.speed / r.plain.limit);
    std::printf("peak: %s, %.1f GFLOP/s; with the profiler the kernel takes %.1f%% longer; %d samples\n\n",
                r.plain.limit_name.c_str(), r.plain.limit / 1e9, 100.0 * profiler_cost(r), r.samples);
    std::printf("%-24s %9s %8s %9s %8s %13s\n", "stage", "ms", "of time", "GFLOP/s", "of peak", "ns per score");
    for (const StageTime &stage : r.stages) {
        std::printf("%-24s %9.3f %7.1f%%", stage.stage.c_str(), stage.seconds * 1e3,
                    100.0 * stage.seconds / r.plain.seconds);
        if (stage.flops > 0.0) {
            const double speed = stage.flops / stage.seconds;
            std::printf(" %9.1f %7.1f%%", speed / 1e9, 100.0 * speed / r.plain.limit);
        } else {
            std::printf(" %9s %8s", "", "");
        }
        std::printf(" %13.4f\n", stage.seconds / r.scores * 1e9);
    }
    std::printf(
        "\nTimes are shares of the profile's samples, laid over the best run without it. GFLOP/s of a stage count\n"
        "all scores of its tiles, also those that limits mask, or that rows leave out since they see none of the "
        "keys.\n");
    if (profiler_cost(r) > 0.1) {
        std::printf("The profiler costs much here: small Funcs that are computed often look slower than they are.\n");
    }
}

void print_json(const Result &r) {
    nlohmann::json stages = nlohmann::json::array();
    for (const StageTime &stage : r.stages) {
        stages.push_back({{"stage", stage.stage}, {"seconds", stage.seconds}, {"flops", stage.flops}});
    }
    const nlohmann::json text = {
        {"kernel", r.kernel},
        {"seconds", r.plain.seconds},
        {"speed", r.plain.speed},
        {"fma_peak", r.plain.limit},
        {"profiled_seconds", r.profiled.seconds},
        {"samples", r.samples},
        {"scores", r.scores},
        {"stages", stages},
    };
    std::cout << text.dump(2) << "\n";
}

std::filesystem::path make_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hattn-roofline-XXXXXX").string();
    if (!mkdtemp(pattern.data())) {
        throw std::runtime_error("cannot make a folder like " + pattern);
    }
    return pattern;
}

int run(int argc, char **argv) {
    const Options options = parse_options(argc, argv);
    const std::filesystem::path folder = make_folder();
    const Result result = measure(options, folder);
    std::filesystem::remove_all(folder);
    if (options.json) {
        print_json(result);
    } else {
        print_table(result);
    }
    return 0;
}

}  // namespace

}  // namespace hattn::roofline

int main(int argc, char **argv) {
    try {
        return hattn::roofline::run(argc, argv);
    } catch (const std::invalid_argument &error) {
        std::cerr << "hattn-roofline: " << error.what() << "\n" << hattn::roofline::kUsage;
        return 2;
    } catch (const std::exception &error) {
        std::cerr << "hattn-roofline: " << error.what() << "\n";
        return 1;
    }
}
