// hattn-bench-builds: builds of the library beside each other, call by call in turn in one process. See
// builds_options.cpp.
//
// Inputs, output and workspace are the same memory for all builds: where they lie is worth some percent.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "builds_options.h"
#include "compared_problem.h"
#include "loaded_build.h"
#include "paged_keys.h"
#include "statistics.h"
#include "stopwatch.h"
#include "tensor_data.h"

namespace {

using namespace hattn;
using namespace hattn::bench;

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

void compare(const Builds &builds, const cases::Case &c, const BuildsOptions &options) {
    ComparedProblem problem(c, options.keys.value, options.scales.value);
    std::optional<Context> owner;
    std::optional<PagedKeys> pages;
    if (options.page_size > 0) {
        pages.emplace(owner.emplace(), problem.floats, options.page_size);
        pages->bind(problem.args);
        problem.desc.page_size = options.page_size;
    }
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

// What stands before a place in a text, and what behind it.
std::pair<std::string, std::string> parted(const std::string &text, size_t place) {
    return {text.substr(0, place), place == std::string::npos ? "" : text.substr(place + 1)};
}

Builds load_builds(const BuildsOptions &options) {
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
        const BuildsOptions options = parse_builds_options(argc, argv);
        const Builds builds = load_builds(options);
        const std::string place =
            options.page_size > 0 ? "in pages of " + std::to_string(options.page_size) : options.layout.name;
        std::printf("threads: %d, keys and values: %s, %s\n\n| case | kernel | %s |", options.threads,
                    options.keys.name, place.c_str(), builds[0]->name().c_str());
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
