// Counts what is taken from the heap by anyone in the process. Linking heap_counter.cpp replaces malloc and its
// relatives; under a sanitizer, which has its own, the count stays 0.
#pragma once

#include <cstdint>

namespace hattn::test {

uint64_t heap_allocations();

}  // namespace hattn::test
