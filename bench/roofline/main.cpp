// hattn-roofline: where the time of one attention kernel goes, stage by stage, and what share of the machine's peak
// each reaches. Halide compiles the kernel twice, as it is and with its sampling profiler, and the library's own
// planner calls it, on one thread. See options.cpp for the command line.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>

#include "generators/stored_side.h"
#include "kernel_table.h"
#include "options.h"
#include "peaks.h"
#include "report.h"
#include "runtime/tensor.h"
#include "stopwatch.h"
#include "timed_problem.h"
#include "work.h"

namespace hattn::roofline {

namespace {

void force(const std::string &word) {
    setenv("HATTN_FORCE", word.c_str(), 1);
}

// A kernel that computes attention alone.
NamedSpec attention_kernel(const std::string &name) {
    NamedSpec chosen = find_spec(name);
    if (!is_attention(chosen.spec.kind)) {
        throw std::invalid_argument("--kernel: \"" + name + "\" is of " + generators::kind_name(chosen.spec.kind) +
                                    ", but must be of naive, flash or split_kv, which compute attention alone");
    }
    return chosen;
}

// One with a tile, over the same keys and values.
NamedSpec with_tile(NamedSpec chosen, const schedules::Tile &tile) {
    chosen.spec.kind = KernelKind::kFlash;
    chosen.spec.tile = tile;
    chosen.spec.from_memory = generators::FromMemory::kNo;
    if (chosen.spec.storage != KeyStorage::kFloat32 && !multiplies_matrices(chosen.spec.storage) &&
        chosen.spec.storage != KeyStorage::kBfloat16) {
        chosen.spec.storage = KeyStorage::kAny;  // others decode
    }
    add_kernel(chosen.spec, chosen.target);
    return chosen;
}

// The kernel to look at: named, of a tile, or the planner's. Nothing is compiled yet.
NamedSpec choose(const Options &options) {
    if (!options.target.empty()) {
        force("target=" + options.target);
    }
    NamedSpec chosen = attention_kernel(!options.kernel.empty() ? options.kernel
                                                                : TimedProblem(options.problem, options.keys).kernel());
    if (options.tile) {
        chosen = with_tile(chosen, *options.tile);
    }
    force("kernel=" + chosen.spec.name(chosen.target));
    return chosen;
}

// Plans for the kernel that is forced.
std::unique_ptr<TimedProblem> plan_for(const Options &options, const NamedSpec &chosen) {
    const std::string name = chosen.spec.name(chosen.target);
    try {
        auto problem = std::make_unique<TimedProblem>(options.problem, options.keys);
        if (const std::string planned = problem->kernel(); planned != name) {
            throw std::invalid_argument("--kernel: is \"" + name + "\", but " + planned + " takes the problem");
        }
        return problem;
    } catch (const Error &error) {
        throw std::invalid_argument("--kernel: \"" + name + "\" cannot compute the problem: " + error.what());
    }
}

double run_for(TimedProblem &problem, double seconds) {
    double best = std::numeric_limits<double>::infinity();
    const bench::Stopwatch watch;
    do {
        best = std::min(best, problem.run());
    } while (watch.seconds() < seconds);
    return best;
}

// Of files that are made and go with it.
struct Folder {
    Folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "hattn-roofline-XXXXXX").string();
        if (!mkdtemp(pattern.data())) {
            throw std::runtime_error("cannot make a folder like " + pattern);
        }
        path = pattern;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    std::filesystem::path path;
};

CallWork work_of(TimedProblem &problem, const NamedSpec &chosen) {
    const schedules::TargetRow row = schedules::resolve_target(schedules::host_architecture(), chosen.target);
    CallWork work;
    watch_calls([&](void *const *arguments) { add_call(chosen.spec, row, arguments, work); });
    problem.run();
    watch_calls(nullptr);
    return work;
}

// In turns, so that what disturbs the machine disturbs all alike.
void measure_in_turns(TimedProblem &problem, const CompiledKernel &plain, const CompiledKernel &profiled,
                      double seconds, Peaks &peaks, Result &result) {
    constexpr int kTurns = 8;
    result.seconds = result.profiled_seconds = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < kTurns; ++turn) {
        peaks.look();
        install(plain.function());
        result.seconds = std::min(result.seconds, run_for(problem, seconds / kTurns));
        install(profiled.function());
        result.profiled_seconds = std::min(result.profiled_seconds, run_for(problem, seconds / kTurns));
    }
    result.products = peaks.products();
    result.products_name = peaks.products_name();
    result.multiply_adds = peaks.multiply_adds();
    result.reads = peaks.reads();
}

// Shares of the profile, laid over the time of the kernel as it is.
void lay_over(std::vector<StageTime> &stages, double seconds) {
    double total = 0.0;
    for (const StageTime &stage : stages) {
        total += stage.seconds;
    }
    for (StageTime &stage : stages) {
        stage.seconds *= seconds / total;
        stage.fetching *= seconds / total;
    }
}

Result measure(const Options &options) {
    constexpr int kSampleEvery = 100;  // microseconds
    const NamedSpec chosen = choose(options);
    const std::unique_ptr<TimedProblem> problem = plan_for(options, chosen);
    const Folder folder;
    make_others([&](KernelKind kind) {
        return CompiledKernel({.kind = kind, .tile = {}}, chosen.target, false, folder.path).function();
    });
    const CompiledKernel plain(chosen.spec, chosen.target, false, folder.path);
    CompiledKernel profiled(chosen.spec, chosen.target, true, folder.path);
    Result result;
    result.kernel = chosen.spec.name(chosen.target);
    result.dtype = dtype_name(options.keys);
    result.has_integers = generators::storage_bits(options.keys) < 16;
    result.visible_flops = bench::visible_flops(options.problem);
    install(plain.function());
    const std::string wrong = problem->check(chosen.spec.storage);
    if (!wrong.empty()) {
        throw std::runtime_error("wrong result: " + wrong);
    }
    result.work = work_of(*problem, chosen);
    install(profiled.function());
    problem->run();
    profiled.start_profile(kSampleEvery);
    Peaks peaks(problem->isa(), chosen.spec.storage);
    measure_in_turns(*problem, plain, profiled, options.seconds, peaks, result);
    const Profile profile = profiled.profile();
    result.samples = profile.samples;
    const Dims dims = {static_cast<double>(options.problem.key_dim), static_cast<double>(options.problem.value_dim),
                       generators::storage_bits(options.keys) / 8.0};
    result.stages = stage_times(profile.funcs, result.work, chosen.spec.storage, dims);
    lay_over(result.stages, result.seconds);
    return result;
}

int run(int argc, char **argv) {
    const Options options = parse_options(argc, argv);
    if (options.help) {
        std::cout << kUsage;
        return 0;
    }
    const Result result = measure(options);
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
