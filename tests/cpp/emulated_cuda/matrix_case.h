// The problem that tests of kernels for tensor cores start from.
#pragma once

#include <string>

#include "case.h"

namespace hattn::test {

// More than a tile of rows and a chunk of keys, heads that share a kv head.
inline cases::Case matrix_case(const char *name) {
    cases::Case c;
    c.name = std::string("matrices_") + name;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = 70;
    c.kv_length = 150;
    c.key_dim = c.value_dim = 64;
    return c;
}

}  // namespace hattn::test
