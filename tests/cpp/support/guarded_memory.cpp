#include "guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace hattn::test {

GuardedMemory::GuardedMemory(size_t size, Guard guard) {
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t usable = (size + page - 1) / page * page;
    mapped_ = usable + 2 * kGuardBytes;
    mapping_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) {
        throw std::runtime_error("mmap failed");
    }
    auto *first = static_cast<std::byte *>(mapping_) + kGuardBytes;
    if (usable > 0 && mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping_, mapped_);
        throw std::runtime_error("mprotect failed");
    }
    data_ = guard == Guard::kAfter ? first + usable - size : first;
}

GuardedMemory::~GuardedMemory() {
    munmap(mapping_, mapped_);
}

}  // namespace hattn::test
