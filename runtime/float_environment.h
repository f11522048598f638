// How the calling thread's CPU rounds, and what it does with subnormal numbers: the same in all of the library's threads,
// whatever the application has set in its own, so that results depend neither on it nor on who computes them.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hattn {

// To nearest, subnormal numbers as they are, nothing trapped: as a process begins, as long as this lives.
class UsualArithmetic {
public:
#if defined(__x86_64__)
    UsualArithmetic() : before_(_mm_getcsr()) {
        if ((before_ & ~kFlags) != kUsual) {
            _mm_setcsr(kUsual);
        }
    }
    ~UsualArithmetic() {
        if ((before_ & ~kFlags) != kUsual) {
            _mm_setcsr(before_);
        }
    }
#elif defined(__aarch64__)
    UsualArithmetic() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        if (before_ != 0) {
            asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
        }
    }
    ~UsualArithmetic() {
        if (before_ != 0) {
            asm volatile("msr fpcr, %0" : : "r"(before_));
        }
    }
#else
    UsualArithmetic() {}
#endif
    UsualArithmetic(const UsualArithmetic &) = delete;
    UsualArithmetic &operator=(const UsualArithmetic &) = delete;

private:
#if defined(__x86_64__)
    static constexpr unsigned kFlags = 0x3F, kUsual = 0x1F80;  // what has happened; masks of exceptions
    const unsigned before_;
#elif defined(__aarch64__)
    uint64_t before_;
#endif
};

// Subnormal results count as 0 while kernels run, for each of which CPUs of Intel take some 150 cycles otherwise: weights of
// keys that are far off make many. Decision 0054. On x86-64, as long as this lives, if `wanted`. What it reads may be
// subnormal.
class FlushedSubnormals {
public:
#if defined(__x86_64__)
    explicit FlushedSubnormals(bool wanted) : before_(_mm_getcsr()) {
        if (wanted) {
            _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON);
        }
    }
    ~FlushedSubnormals() {
        _mm_setcsr(before_);
    }
    FlushedSubnormals(const FlushedSubnormals &) = delete;
    FlushedSubnormals &operator=(const FlushedSubnormals &) = delete;

private:
    const unsigned before_;
#else
    explicit FlushedSubnormals(bool) {}
#endif
};

}  // namespace hattn
