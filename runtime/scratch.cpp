#include "scratch.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "hattn/hattn.h"

namespace hattn {

namespace {
std::atomic<size_t> overflows{0};

size_t aligned(size_t bytes) {
    return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}
}  // namespace

bool ScratchArena::owns(const void *memory) const {
    return memory >= base_ && memory < base_ + capacity_;
}

void *ScratchArena::allocate(size_t bytes) {
    const size_t size = aligned(bytes);
    Header *place = nullptr;
    for (Header *block = top_; block; block = block->below) {
        const bool fits = block->free && size <= block->bytes && 2 * size > block->bytes;
        if (fits && (!place || block->bytes < place->bytes)) {
            place = block;
        }
    }
    if (place) {
        place->free = false;
        return place + 1;
    }
    if (size + sizeof(Header) <= capacity_ - used_) {
        top_ = new (base_ + used_) Header{top_, size, false};
        used_ += sizeof(Header) + size;
        return top_ + 1;
    }
    overflows.fetch_add(1, std::memory_order_relaxed);
    return std::aligned_alloc(kScratchAlignment, size);
}

void ScratchArena::release(void *memory) {
    if (!owns(memory)) {
        std::free(memory);
        return;
    }
    (static_cast<Header *>(memory) - 1)->free = true;
    while (top_ && top_->free) {
        used_ = static_cast<size_t>(reinterpret_cast<char *>(top_) - base_);
        top_ = top_->below;
    }
}

size_t scratch_overflow_count() {
    return overflows.load(std::memory_order_relaxed);
}

}  // namespace hattn

extern "C" {
// Not part of the public interface.
void *hattn_scratch_allocate(void *arena, size_t bytes) {
    return static_cast<hattn::ScratchArena *>(arena)->allocate(bytes);
}

void hattn_scratch_free(void *arena, void *memory) {
    static_cast<hattn::ScratchArena *>(arena)->release(memory);
}
}
