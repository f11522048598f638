#include "machine_limits.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "limit_loops.h"

namespace hattn::bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}

const LimitLoops &loops_of(Isa isa) {
#if defined(__x86_64__)
    switch (isa) {
    case Isa::kAvx512:
        return avx512_loops();
    case Isa::kAvx2:
        return avx2_loops();
    case Isa::kBaseline:
        break;
    }
#else
    static_cast<void>(isa);
#endif
    return baseline_loops();
}

struct Share {
    Clock::time_point begin, end;
    double amount = 0.0;  // operations or bytes
};

// Every thread calls step(thread), which returns the amount of work it did, until `seconds` have passed. Together they
// did the sum of the amounts between the first begin and the last end.
template<typename Step>
double measure(int threads, double seconds, Step step) {
    std::vector<Share> shares(static_cast<size_t>(threads));
    std::atomic<int> waiting{threads};
    auto work = [&](int thread) {
        // All begin together. Threads may outnumber cores, so whoever waits makes room.
        waiting.fetch_sub(1);
        while (waiting.load() > 0) {
            std::this_thread::yield();
        }
        Share share;
        share.begin = share.end = Clock::now();
        do {
            share.amount += step(thread);
            share.end = Clock::now();
        } while (seconds_between(share.begin, share.end) < seconds);
        shares[static_cast<size_t>(thread)] = share;
    };
    std::vector<std::thread> team;
    for (int thread = 0; thread < threads; ++thread) {
        team.emplace_back(work, thread);
    }
    Share total = {Clock::time_point::max(), Clock::time_point::min(), 0.0};
    for (int thread = 0; thread < threads; ++thread) {
        team[static_cast<size_t>(thread)].join();
        const Share &share = shares[static_cast<size_t>(thread)];
        total.begin = std::min(total.begin, share.begin);
        total.end = std::max(total.end, share.end);
        total.amount += share.amount;
    }
    return total.amount / seconds_between(total.begin, total.end);
}

// Results of the loops end here, so that they have to be computed.
template<typename T>
void keep(T value) {
    static std::atomic<T> sink;
    sink.store(value, std::memory_order_relaxed);
}

}  // namespace

const char *isa_name(Isa isa) {
    switch (isa) {
    case Isa::kBaseline:
        return "baseline";
    case Isa::kAvx2:
        return "avx2";
    case Isa::kAvx512:
        return "avx512";
    }
    return "unknown";
}

bool isa_runs(Isa isa) {
#if defined(__x86_64__)
    switch (isa) {
    case Isa::kBaseline:
        return true;
    case Isa::kAvx2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::kAvx512:
        return __builtin_cpu_supports("avx512f");
    }
    return false;
#else
    return isa == Isa::kBaseline;
#endif
}

Isa widest_isa() {
    for (Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
        if (isa_runs(isa)) {
            return isa;
        }
    }
    return Isa::kBaseline;
}

namespace {

double measure_flops(const LimitLoops &loops, int threads, double seconds) {
    constexpr int64_t kRounds = 64;  // some ten microseconds between looks at the clock
    return measure(threads, seconds, [&](int) {
        keep(loops.multiply_add(kRounds));
        return loops.flops_per_round * static_cast<double>(kRounds);
    });
}

}  // namespace

double measure_flops(Isa isa, int threads, double seconds) {
    return measure_flops(loops_of(isa), threads, seconds);
}

double measure_bfloat16_flops(int threads, double seconds) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) {
        return measure_flops(avx512bf16_loops(), threads, seconds);
    }
#endif
    static_cast<void>(threads);
    static_cast<void>(seconds);
    return 0.0;
}

double measure_matrix_flops(int threads, double seconds) {
#if defined(__x86_64__)
    // Linux grants a process the registers on request: its Documentation/arch/x86/xstate.rst.
    constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    if (__builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, kRequest, kTileData) == 0) {
        return measure_flops(amx_loops(), threads, seconds);
    }
#endif
    static_cast<void>(threads);
    static_cast<void>(seconds);
    return 0.0;
}

double measure_read(const std::vector<Span> &spans, int threads, double seconds) {
    const LimitLoops &loops = loops_of(widest_isa());
    return measure(threads, seconds, [&](int thread) {
        double bytes = 0.0;
        for (const Span &span : spans) {
            size_t part = span.bytes / (static_cast<size_t>(threads) * kReadBlock) * kReadBlock;
            const auto *begin = static_cast<const std::byte *>(span.data) + part * static_cast<size_t>(thread);
            keep(loops.read(begin, part));
            bytes += static_cast<double>(part);
        }
        return bytes;
    });
}

}  // namespace hattn::bench
