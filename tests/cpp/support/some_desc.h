// Problems that are planned, and not executed.
#pragma once

#include "problem.h"

namespace hattn::test {

inline hattn_attention_desc some_desc(int64_t query_length = 40, int64_t kv_length = 700) {
    cases::Case c;
    c.name = "planned";
    c.query_length = query_length;
    c.kv_length = kv_length;
    return cases::desc_of(c);
}

}  // namespace hattn::test
