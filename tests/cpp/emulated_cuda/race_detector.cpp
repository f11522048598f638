#include "race_detector.h"

#include <algorithm>

namespace hattn::emulated_cuda {

namespace {

constexpr uint32_t kThreadBits = 11;
constexpr uint32_t kSeveral = (1u << kThreadBits) - 1;

uint32_t entry(uint32_t interval, uint32_t thread) {
    return interval << kThreadBits | thread;
}

// Of an access at `now` with earlier ones.
Conflict conflict_with(const Moment &now, const uint32_t *entries, size_t bytes, uint32_t mine) {
    const uint32_t launch = entry(now.first_of_launch, 0), block = entry(now.first_of_block, 0);
    const uint32_t interval = entry(now.interval, 0);
    uint32_t other_threads = 0, other_blocks = 0;
    for (size_t i = 0; i < bytes; ++i) {
        other_threads |= static_cast<uint32_t>(entries[i] >= interval) & static_cast<uint32_t>(entries[i] != mine);
        other_blocks |= static_cast<uint32_t>(entries[i] >= launch) & static_cast<uint32_t>(entries[i] < block);
    }
    return other_threads ? Conflict::kThreads : other_blocks ? Conflict::kBlocks : Conflict::kNone;
}

}  // namespace

Conflict AccessLog::read(const Moment &now, size_t first, size_t bytes, int thread) {
    const uint32_t mine = entry(now.interval, static_cast<uint32_t>(thread)), interval = entry(now.interval, 0);
    uint32_t *reads = reads_.data() + first;
    for (size_t i = 0; i < bytes; ++i) {
        const bool another = reads[i] >= interval && reads[i] != mine;
        reads[i] = another ? interval | kSeveral : mine;
    }
    return conflict_with(now, writes_.data() + first, bytes, mine);
}

Conflict AccessLog::write(const Moment &now, size_t first, size_t bytes, int thread) {
    const uint32_t mine = entry(now.interval, static_cast<uint32_t>(thread));
    const Conflict with_reads = conflict_with(now, reads_.data() + first, bytes, mine);
    const Conflict with_writes = conflict_with(now, writes_.data() + first, bytes, mine);
    std::fill_n(writes_.begin() + static_cast<std::ptrdiff_t>(first), bytes, mine);
    return with_reads != Conflict::kNone ? with_reads : with_writes;
}

bool AccessLog::written_by_block(const Moment &now, size_t first, size_t bytes) const {
    const uint32_t block = entry(now.first_of_block, 0);
    return std::all_of(writes_.begin() + static_cast<std::ptrdiff_t>(first),
                       writes_.begin() + static_cast<std::ptrdiff_t>(first + bytes),
                       [&](uint32_t last) { return last >= block; });
}

void AccessLog::clear() {
    std::fill(writes_.begin(), writes_.end(), 0);
    std::fill(reads_.begin(), reads_.end(), 0);
}

}  // namespace hattn::emulated_cuda
