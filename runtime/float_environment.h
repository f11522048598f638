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
    UsualArithmetic() : before_(arithmetic()) {
        set_arithmetic(before_, kUsual);
    }
    ~UsualArithmetic() {
        set_arithmetic(kUsual, before_);
    }
    UsualArithmetic(const UsualArithmetic &) = delete;
    UsualArithmetic &operator=(const UsualArithmetic &) = delete;

private:
    friend class CallersArithmetic;

#if defined(__x86_64__)
    using Word = unsigned;
    static constexpr Word kFlags = 0x3F, kUsual = 0x1F80;  // what has happened; masks of exceptions

    static Word arithmetic() {
        return _mm_getcsr();
    }
    static void set_arithmetic(Word from, Word to) {
        if ((from & ~kFlags) != (to & ~kFlags)) {
            _mm_setcsr(to);
        }
    }
#elif defined(__aarch64__)
    using Word = uint64_t;
    static constexpr Word kUsual = 0;

    static Word arithmetic() {
        Word word;
        asm volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set_arithmetic(Word from, Word to) {
        if (from != to) {
            asm volatile("msr fpcr, %0" : : "r"(to));
        }
    }
#else
    using Word = int;
    static constexpr Word kUsual = 0;

    static Word arithmetic() {
        return kUsual;
    }
    static void set_arithmetic(Word, Word) {}
#endif

    const Word before_;
};

// Likewise, of a thread that has called the library. Threads that only help it have no such thing: where a variable of
// threads lies in a library that was loaded late, the first look at it takes from the heap.
class CallArithmetic {
public:
    CallArithmetic() {
        innermost_ = &usual_;
    }
    ~CallArithmetic() {
        innermost_ = outer_;
    }
    CallArithmetic(const CallArithmetic &) = delete;
    CallArithmetic &operator=(const CallArithmetic &) = delete;

private:
    friend class CallersArithmetic;

    static inline thread_local const UsualArithmetic *innermost_ = nullptr;

    const UsualArithmetic *const outer_ = innermost_;
    const UsualArithmetic usual_;
};

// That of whoever called the library, as long as this lives, for code of theirs.
class CallersArithmetic {
public:
    CallersArithmetic() {
        if (usual_) {
            UsualArithmetic::set_arithmetic(UsualArithmetic::kUsual, usual_->before_);
        }
    }
    ~CallersArithmetic() {
        if (usual_) {
            UsualArithmetic::set_arithmetic(usual_->before_, UsualArithmetic::kUsual);
        }
    }
    CallersArithmetic(const CallersArithmetic &) = delete;
    CallersArithmetic &operator=(const CallersArithmetic &) = delete;

private:
    const UsualArithmetic *const usual_ = CallArithmetic::innermost_;
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
