// A small generator of its own, so that a seed means the same numbers with every standard library.
#pragma once

#include <cmath>
#include <cstdint>

namespace hattn::cases {

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    // splitmix64 (Steele, Lea and Flood, 2014).
    uint64_t bits() {
        uint64_t z = (state_ += kStep);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }

    // As if so many bits() had been taken.
    void skip(uint64_t count) {
        state_ += count * kStep;
    }

    double uniform() {
        return static_cast<double>(bits() >> 11) * 0x1p-53;
    }  // [0, 1)

    // Inclusive on both sides.
    int64_t integer(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
    }

    bool chance(double probability) {
        return uniform() < probability;
    }

    // Box-Muller; the second value is not kept.
    float normal() {
        constexpr double kTwoPi = 6.283185307179586;
        double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
        return static_cast<float>(radius * std::cos(kTwoPi * uniform()));
    }

    static constexpr uint64_t kBitsOfNormal = 2;  // that normal() takes

private:
    static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;

    uint64_t state_;
};

}  // namespace hattn::cases
