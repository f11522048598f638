// Memory for a kernel's intermediates, taken from the caller's workspace. Kernels call hattn_scratch_allocate and
// hattn_scratch_free where Halide would call malloc and free; their user context is the arena of the worker that runs
// them.
#pragma once

#include <cstddef>
#include <type_traits>

namespace hattn {

inline constexpr size_t kScratchAlignment = 64;

// How kernels reach an arena, which is their user context: those of the library by these names, those of packs, which
// are linked without it, through the two pointers that every arena starts with.
extern "C" {
void *hattn_scratch_allocate(void *arena, size_t bytes);
void hattn_scratch_free(void *arena, void *memory);
}
struct ScratchFunctions {
    void *(*allocate)(void *arena, size_t bytes) = hattn_scratch_allocate;
    void (*free)(void *arena, void *memory) = hattn_scratch_free;
};

// A stack of blocks. Blocks freed out of order go when those above them have gone; till then one that needs more than
// half of their place may have it.
class ScratchArena {
public:
    ScratchArena(void *memory, size_t bytes) : base_(static_cast<char *>(memory)), capacity_(bytes) {}

    void *allocate(size_t bytes);
    void release(void *memory);

private:
    // Before each block, a whole alignment unit of its own.
    struct alignas(kScratchAlignment) Header {
        Header *below;
        size_t bytes;
        bool free;
    };

    bool owns(const void *memory) const;

    ScratchFunctions functions_;  // the first member
    char *base_;
    size_t capacity_;
    size_t used_ = 0;
    Header *top_ = nullptr;
};

static_assert(std::is_standard_layout_v<ScratchArena>);

// How often an arena was too small and the heap had to help, in this process. The size computations of plans are meant
// to keep it at zero, and the tests hold them to it.
size_t scratch_overflow_count();

}  // namespace hattn
