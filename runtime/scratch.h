// Memory for a kernel's intermediates, taken from the caller's workspace. Kernels call hattn_scratch_allocate and
// hattn_scratch_free where Halide would call malloc and free; their user context is the arena of the worker that runs them.
#pragma once

#include <cstddef>

namespace hattn {

inline constexpr size_t kScratchAlignment = 64;

class ScratchArena {
public:
    ScratchArena(void *memory, size_t bytes) : base_(static_cast<char *>(memory)), capacity_(bytes) {}

    // Forgets what the last kernel took.
    void reset() { used_ = 0; }
    void *allocate(size_t bytes);
    void release(void *memory);

private:
    bool owns(const void *memory) const;

    char *base_;
    size_t capacity_;
    size_t used_ = 0;
};

// How often an arena was too small and the heap had to help, in this process. The size computations of plans are meant to keep it
// at zero, and the tests hold them to it.
size_t scratch_overflow_count();

}  // namespace hattn
