#include "heap_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<uint64_t> allocations{0};
thread_local uint64_t allocations_of_thread = 0;

[[maybe_unused]] void count_one() {
    ++allocations;
    ++allocations_of_thread;
}

}  // namespace

namespace hattn::test {

uint64_t heap_allocations() {
    return allocations;
}

uint64_t heap_allocations_of_thread() {
    return allocations_of_thread;
}

}  // namespace hattn::test

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

extern "C" {

// glibc's own names of what is replaced here.
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

void *malloc(size_t bytes) {
    count_one();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    count_one();
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    count_one();
    return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    count_one();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

void free(void *memory) {
    __libc_free(memory);
}

}  // extern "C"

#endif
