// Time, and how long to look at a limit.
#pragma once

#include <chrono>

namespace hattn::bench {

class Stopwatch {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Calls measure(seconds) again and again for some 20 ms. Many short looks: on a shared machine a short one is likelier
// to be undisturbed, as short runs of a case are.
template<typename Measure>
void look_at_limit(Measure measure) {
    constexpr int kLeast = 3;
    constexpr double kLook = 5e-4, kTotal = 0.02;  // seconds
    Stopwatch watch;
    for (int look = 0; look < kLeast || watch.seconds() < kTotal; ++look) {
        measure(kLook);
    }
}

}  // namespace hattn::bench
