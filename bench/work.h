// How much a problem asks for at least, whatever a kernel does.
#pragma once

#include <vector>

#include "case.h"
#include "machine_limits.h"
#include "problem.h"

namespace hattn::bench {

// Floating-point operations of both products over the (query head, query, key) triples that lengths, the causal limit
// and the window let through, a multiply-add being two. A boolean mask and a bias do not take any away: no kernel is
// expected to skip single keys. Softmax is not counted.
double visible_flops(const cases::Case &c);

// The keys that any row of sequence b sees: [begin, end).
struct VisibleKeys {
    int64_t begin, end;
};
VisibleKeys visible_keys(const cases::Case &c, int64_t b);

// Those keys and their values, of all sequences and kv heads, once.
double visible_bytes(const cases::Case &c);

// The memory that holds them. k and v have to be [B, H, S, D] in memory.
std::vector<Span> visible_spans(const cases::Problem &problem);

}  // namespace hattn::bench
