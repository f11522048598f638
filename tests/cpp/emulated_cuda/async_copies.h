// Copies into shared memory that a thread has started and that are under way until it waits for them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "lane_map.h"

namespace hattn::emulated_cuda {

class Memory;

// Of one thread. Groups end where it says so, and are waited for in their order (PTX ISA, "cp.async.commit_group" and
// "cp.async.wait_group").
class AsyncCopies {
public:
    static constexpr size_t kBytes = 16;

    struct Copy {
        uint64_t to;
        std::array<uint8_t, kBytes> data;
    };

    void add(const Copy &copy) {
        open_.push_back(copy);
    }
    void commit() {
        groups_.push_back(std::move(open_));
        open_.clear();
    }
    // Until no more groups than so many are under way.
    void wait(size_t groups, Memory &memory, int thread, int lane);
    bool is_done() const;

private:
    std::vector<Copy> open_;
    std::deque<std::vector<Copy>> groups_;
};

void add_async_forms(Forms &forms);

}  // namespace hattn::emulated_cuda
