// Overflow-checked size arithmetic.
#pragma once

#include <cstdint>

#include "status.h"

namespace hattn {

inline int64_t checked_multiply(int64_t a, int64_t b, const char *what) {
    int64_t product;
    require(!__builtin_mul_overflow(a, b, &product), HATTN_OVERFLOW, what, ": ", a, " * ", b,
            " does not fit in 64 bits");
    return product;
}

inline int64_t checked_add(int64_t a, int64_t b, const char *what) {
    int64_t sum;
    require(!__builtin_add_overflow(a, b, &sum), HATTN_OVERFLOW, what, ": ", a, " + ", b, " does not fit in 64 bits");
    return sum;
}

inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

inline int64_t round_up(int64_t a, int64_t multiple) {
    return ceil_div(a, multiple) * multiple;
}

}  // namespace hattn
