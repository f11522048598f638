// Counts what is taken from the heap. Linking heap_counter.cpp replaces malloc and its
// relatives; under a sanitizer, which has its own, the count stays 0.
#pragma once

#include <cstdint>

namespace hattn::test {

uint64_t heap_allocations();            // by anyone in the process
uint64_t heap_allocations_of_thread();  // by whoever asks

}  // namespace hattn::test
