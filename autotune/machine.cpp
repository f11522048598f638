#include "machine.h"

#include <algorithm>

#include "machine_limits.h"
#include "stopwatch.h"

namespace hattn::autotune {

namespace {

// Sizes that lie well within a first, second and third level of cache, and one that lies in memory.
constexpr size_t kSizes[] = {24 << 10, 256 << 10, 8 << 20, 96 << 20};

// Up to which size a level is taken to reach, as a multiple of the size it was measured with.
constexpr double kReach = 1.5;

// Without a better guess: what a cache of the last level holds on most machines, per process.
constexpr double kLastCache = 32 << 20;

double best_of(auto measure) {
    double best = 0.0;
    bench::look_at_limit([&](double look) { best = std::max(best, measure(look)); });
    return best;
}

}  // namespace

double Machine::read_speed(double bytes) const {
    for (const CacheLevel &level : levels) {
        if (bytes <= level.bytes) {
            return level.bytes_per_second;
        }
    }
    return levels.back().bytes_per_second;
}

Machine measure_machine(int threads) {
    Machine machine;
    machine.threads = threads;
    machine.cache_bytes = kLastCache;
    machine.flops_per_second =
        best_of([&](double look) { return bench::measure_flops(bench::widest_isa(), threads, look); }) / threads;
    const std::vector<char> memory(kSizes[3], 1);
    for (const size_t size : kSizes) {
        const std::vector<bench::Span> spans = {{memory.data(), size}};
        const double speed = best_of([&](double look) { return bench::measure_read(spans, threads, look); });
        machine.levels.push_back({kReach * static_cast<double>(size), speed});
    }
    return machine;
}

nlohmann::ordered_json machine_json(const Machine &machine) {
    nlohmann::ordered_json levels = nlohmann::ordered_json::array();
    for (const CacheLevel &level : machine.levels) {
        levels.push_back({{"bytes", level.bytes}, {"bytes_per_second", level.bytes_per_second}});
    }
    return {{"threads", machine.threads}, {"flops_per_second", machine.flops_per_second}, {"levels", levels}};
}

}  // namespace hattn::autotune
