// How much a problem asks for at least, whatever a kernel does.
#pragma once

#include "case.h"

namespace hattn::bench {

// (query head, query, key) triples that lengths, the causal limit and the window let through. A boolean mask and a bias
// do not take any away: no kernel is expected to skip single keys.
double visible_triples(const cases::Case &c);

// Floating-point operations of both products over the visible triples, a multiply-add being two. Softmax is not
// counted.
double visible_flops(const cases::Case &c);

// All of k and v once.
double key_value_bytes(const cases::Case &c);

}  // namespace hattn::bench
