#include "async_copies.h"

#include <algorithm>
#include <cstring>

#include "fault.h"
#include "memory.h"

namespace hattn::emulated_cuda {

namespace {

// cp.async.cg.shared.global [to], [from], 16, bytes: as many bytes, 16 or none, in front of zeros.
void copy(const Instruction &instruction, Warp &warp) {
    const uint32_t *to = warp.lanes<uint32_t>(instruction.operands[0]);
    const uint64_t *from = warp.lanes<uint64_t>(instruction.operands[1]);
    const uint32_t *all = warp.lanes<uint32_t>(instruction.operands[2]);
    const uint32_t *bytes = warp.lanes<uint32_t>(instruction.operands[3]);
    for (int lane = 0; lane < kLanes; ++lane) {
        if (!warp.is_active(lane)) {
            continue;
        }
        if (all[lane] != AsyncCopies::kBytes || (bytes[lane] != 0 && bytes[lane] != AsyncCopies::kBytes)) {
            throw Fault(kIllegalInstruction, "the emulator copies 16 bytes or zeros", lane);
        }
        const int thread = warp.first_thread() + lane;
        AsyncCopies::Copy copy{to[lane] + static_cast<uint64_t>(instruction.first_offset), {}};
        if (bytes[lane] != 0) {
            const uint64_t address = from[lane] + static_cast<uint64_t>(instruction.offset);
            std::memcpy(copy.data.data(),
                        warp.memory().for_reading(Space::kGlobal, address, AsyncCopies::kBytes, thread, lane),
                        AsyncCopies::kBytes);
        }
        warp.memory().start_write(copy.to, AsyncCopies::kBytes, thread, lane);
        warp.copies(lane).add(copy);
    }
}

void commit(const Instruction &, Warp &warp) {
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.is_active(lane)) {
            warp.copies(lane).commit();
        }
    }
}

void wait(const Instruction &instruction, Warp &warp) {
    const uint32_t *groups = warp.lanes<uint32_t>(instruction.operands[0]);
    for (int lane = 0; lane < kLanes; ++lane) {
        if (warp.is_active(lane)) {
            warp.copies(lane).wait(groups[lane], warp.memory(), warp.first_thread() + lane, lane);
        }
    }
}

}  // namespace

void AsyncCopies::wait(size_t groups, Memory &memory, int thread, int lane) {
    for (; groups_.size() > groups; groups_.pop_front()) {
        for (const Copy &copy : groups_.front()) {
            memory.finish_write(copy.to, copy.data.data(), kBytes, thread, lane);
        }
    }
}

bool AsyncCopies::is_done() const {
    return open_.empty() &&
           std::all_of(groups_.begin(), groups_.end(), [](const auto &group) { return group.empty(); });
}

void add_async_forms(Forms &forms) {
    forms["cp.async.cg.shared.global"] = {copy, {4, 8, 4, 4}};
    forms["cp.async.commit_group"] = {commit, {}};
    forms["cp.async.wait_group"] = {wait, {4}};
}

}  // namespace hattn::emulated_cuda
