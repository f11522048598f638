// What the machine can do at best, measured: multiply-adds per second, and bytes read per second. Speeds in the
// benchmarks are shares of these, taken in the same run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hattn::bench {

enum class Isa { kBaseline, kAvx2, kAvx512 };
const char *isa_name(Isa isa);  // "baseline", "avx2", "avx512"
bool isa_runs(Isa isa);         // on this machine
Isa widest_isa();               // that runs

// Floating-point operations per second (a multiply-add is two) of `threads` threads that compute in registers for about
// `seconds`. The machine must run the isa.
double measure_flops(Isa isa, int threads, double seconds);
// The same of products of bfloat16 pairs; 0: this machine has no instruction for them.
double measure_bfloat16_flops(int threads, double seconds);
// The same of products of bfloat16 matrices.
double measure_matrix_flops(int threads, double seconds);

struct Span {
    const void *data;  // aligned to 4
    size_t bytes;      // the part of it that is a multiple of threads * 512 is read
};

// Bytes per second that `threads` threads read for about `seconds`, again and again over the same spans, an equal part
// of each span per thread. So what fits into a cache is read from that cache.
double measure_read(const std::vector<Span> &spans, int threads, double seconds);

// The best of everything measured so far: noise only ever takes away.
class Best {
public:
    void offer(double value) {
        value_ = value > value_ ? value : value_;
    }
    double value() const {
        return value_;
    }

private:
    double value_ = 0.0;
};

}  // namespace hattn::bench
