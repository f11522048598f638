// Subnormal results count as 0 while kernels run, for each of which CPUs of Intel take some 150 cycles otherwise: weights of
// keys that are far off make many. Decision 0054.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hattn {

// On x86-64, of the calling thread, as long as this lives, if `wanted`. What it reads may be subnormal.
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
