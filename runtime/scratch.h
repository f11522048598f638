// Memory for a kernel's intermediates, taken from the caller's workspace. Kernels call hattn_scratch_allocate and
// hattn_scratch_free where Halide would call malloc and free; their user context is the arena of the worker that runs
// them.
#pragma once

#include <cstddef>

namespace hattn {

inline constexpr size_t kScratchAlignment = 64;

// A stack of blocks. Blocks freed out of order go when those above them have gone.
class ScratchArena {
public:
    ScratchArena(void *memory, size_t bytes) : base_(static_cast<char *>(memory)), capacity_(bytes) {}

    void *allocate(size_t bytes);
    void release(void *memory);

private:
    // Before each block, a whole alignment unit of its own.
    struct alignas(kScratchAlignment) Header {
        Header *below;
        bool free;
    };

    bool owns(const void *memory) const;

    char *base_;
    size_t capacity_;
    size_t used_ = 0;
    Header *top_ = nullptr;
};

// How often an arena was too small and the heap had to help, in this process. The size computations of plans are meant
// to keep it at zero, and the tests hold them to it.
size_t scratch_overflow_count();

}  // namespace hattn
