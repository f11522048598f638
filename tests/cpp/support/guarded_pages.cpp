#include "guarded_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace hattn::test {

namespace {

size_t round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

GuardedPages::GuardedPages(const std::vector<int64_t> &rows, int64_t heads, int64_t page_size, int64_t dim,
                           int64_t edge) {
    const auto memory_page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto row_bytes = static_cast<size_t>(heads * dim) * sizeof(float);
    const auto before = round_up(static_cast<size_t>(edge) * row_bytes, memory_page);
    const auto after = round_up(static_cast<size_t>(page_size - edge) * row_bytes, memory_page);
    const size_t slot = before + after + memory_page;  // the last part always faults
    mapped_ = memory_page + rows.size() * slot;
    mapping_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) {
        throw std::runtime_error("mmap failed");
    }
    std::byte *first = static_cast<std::byte *>(mapping_) + memory_page;
    for (size_t page = 0; page < rows.size(); ++page) {
        const size_t used = rows[page] == page_size ? before + after : rows[page] == edge ? before : 0;
        if (used > 0 && mprotect(first + page * slot, used, PROT_READ | PROT_WRITE) != 0) {
            munmap(mapping_, mapped_);
            throw std::runtime_error("mprotect failed");
        }
    }
    tensor_.data = first + before - static_cast<size_t>(edge) * row_bytes;
    tensor_.dtype = HATTN_FLOAT32;
    const int64_t extents[] = {static_cast<int64_t>(rows.size()), heads, page_size, dim};
    const int64_t strides[] = {static_cast<int64_t>(slot / sizeof(float)), dim, heads * dim, 1};
    for (int dimension = 0; dimension < 4; ++dimension) {
        tensor_.extent[dimension] = extents[dimension];
        tensor_.stride[dimension] = strides[dimension];
    }
}

GuardedPages::~GuardedPages() {
    munmap(mapping_, mapped_);
}

}  // namespace hattn::test
