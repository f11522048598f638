// Memory whose neighbours cannot be touched.
#pragma once

#include <cstddef>

namespace hattn::test {

enum class Guard { kAfter, kBefore };

// Inaccessible bytes on either side; a multiple of any page size. Tensors may claim to reach this far past their memory,
// and still overlap nothing.
constexpr size_t kGuardBytes = size_t{1} << 20;

// `size` bytes that end where an inaccessible page begins (kAfter; the size must then be a multiple of the alignment
// wanted), or start where one ends (kBefore).
class GuardedMemory {
public:
    GuardedMemory(size_t size, Guard guard);
    ~GuardedMemory();
    GuardedMemory(const GuardedMemory &) = delete;
    GuardedMemory &operator=(const GuardedMemory &) = delete;

    std::byte *data() const {
        return data_;
    }

private:
    void *mapping_;
    size_t mapped_;
    std::byte *data_;
};

}  // namespace hattn::test
