// Which threads touched which bytes between two barriers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hattn::emulated_cuda {

// A moment: which interval between barriers, of which block, of which launch. Intervals are counted through, blocks run
// one after the other.
struct Moment {
    uint32_t interval = 0;
    uint32_t first_of_block = 0;
    uint32_t first_of_launch = 0;
};

enum class Conflict {
    kNone,
    kThreads,        // of one block, in one interval, and at least one writes
    kBlocks,         // of one launch, and at least one writes
    kUninitialised,  // shared memory that its block has not written
};

// The bytes of one piece of memory. Two accesses of different threads to the same byte, one of which writes, need a
// barrier between them, and none helps between blocks. A write that leaves every byte as it is conflicts with none.
class AccessLog {
public:
    explicit AccessLog(size_t bytes) : writes_(bytes, 0), reads_(bytes, 0) {}

    Conflict read(const Moment &now, size_t first, size_t bytes, int thread);
    Conflict write(const Moment &now, size_t first, size_t bytes, int thread);
    // Of shared memory: whether the block has written them all.
    bool written_by_block(const Moment &now, size_t first, size_t bytes) const;

    // The intervals that fit a log; then all logs are to be cleared and counting starts again.
    static constexpr uint32_t kIntervals = 1u << 20;
    void clear();

private:
    // Per byte the last of them: the interval, and the thread or that there were several.
    std::vector<uint32_t> writes_, reads_;
};

}  // namespace hattn::emulated_cuda
