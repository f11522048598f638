// What the machine can do at best, as the cost model needs it.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

namespace hattn::autotune {

struct CacheLevel {
    double bytes;             // data up to this size is read at that speed
    double bytes_per_second;  // by all threads together
};

struct Machine {
    int threads = 1;
    double flops_per_second = 1.0;   // of one thread; a multiply-add is two
    std::vector<CacheLevel> levels;  // from the smallest; the last one is memory
    double cache_bytes = 0.0;        // that are taken to be in caches

    double read_speed(double bytes) const;
};

// Takes some 100 ms.
Machine measure_machine(int threads);

nlohmann::ordered_json machine_json(const Machine &machine);

}  // namespace hattn::autotune
