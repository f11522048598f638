// machine_limits.h for bench/limits.py, which loads this library with ctypes. Speeds are per second; 0 stands for
// "cannot".
#include <string_view>

#include "machine_limits.h"

using namespace hattn::bench;

// The name of the widest instruction set that runs here.
extern "C" const char *hattn_bench_widest_isa() {
    return isa_name(widest_isa());
}

extern "C" double hattn_bench_flops(const char *isa, int threads, double seconds) {
    for (Isa candidate : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
        if (isa_name(candidate) == std::string_view(isa) && isa_runs(candidate) && threads > 0) {
            return measure_flops(candidate, threads, seconds);
        }
    }
    return 0.0;
}
