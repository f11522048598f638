#include "memory.h"

#include <algorithm>
#include <cstring>

#include "fault.h"

namespace hattn::emulated_cuda {

namespace {

constexpr uint8_t kNothing = 0xff;  // NaN as a number, the last of integers
constexpr uint64_t kAlignment = 256;

// Intervals are counted over all launches, so that logs need not be cleared for each.
uint32_t intervals = 0;

std::string describe(const char *access, Space space, uint64_t address, size_t bytes) {
    return std::string(access) + " of " + std::to_string(bytes) + " bytes of " +
           (space == Space::kShared ? "shared" : "global") + " memory at " + std::to_string(address);
}

void check(Conflict conflict, const char *access, Space space, uint64_t address, size_t bytes, int lane) {
    if (conflict == Conflict::kNone) {
        return;
    }
    const char *what = conflict == Conflict::kThreads  ? ": race with another thread, there is no barrier in between"
                       : conflict == Conflict::kBlocks ? ": race with another block"
                                                       : ": nothing was written there";
    throw Fault(kLaunchFailed, describe(access, space, address, bytes) + what, lane);
}

}  // namespace

uint64_t Allocations::allocate(uint64_t bytes) {
    Allocation allocation;
    allocation.storage.reset(new uint8_t[bytes + kAlignment]);
    std::fill_n(allocation.storage.get(), bytes + kAlignment, kNothing);
    const auto start = reinterpret_cast<uint64_t>(allocation.storage.get());
    const uint64_t begin = (start + kAlignment - 1) / kAlignment * kAlignment;
    allocation.begin = begin;
    allocation.bytes = bytes;
    by_begin_[begin] = std::move(allocation);
    return begin;
}

bool Allocations::free(uint64_t begin) {
    last_ = nullptr;
    return by_begin_.erase(begin) == 1;
}

Allocations::Allocation *Allocations::holding(uint64_t address) {
    const auto holds = [&](const Allocation &a) { return address >= a.begin && address < a.begin + a.bytes; };
    if (last_ && holds(*last_)) {
        return last_;
    }
    const auto next = by_begin_.upper_bound(address);
    if (next == by_begin_.begin() || !holds(std::prev(next)->second)) {
        return nullptr;
    }
    return last_ = &std::prev(next)->second;
}

void Allocations::clear_logs() {
    for (auto &[begin, allocation] : by_begin_) {
        allocation.log.reset();
    }
}

Memory::Memory(Allocations &allocations, size_t shared_bytes)
    : allocations_(allocations),
      shared_(shared_bytes, kNothing),
      under_way_(shared_bytes, false),
      writers_(shared_bytes, 0),
      shown_before_(shared_bytes, 0),
      shared_log_(shared_bytes) {}

Memory::Place Memory::locate(Space space, uint64_t address, size_t bytes, int lane) {
    if (address % bytes != 0) {
        throw Fault(kMisalignedAddress, describe("access", space, address, bytes) + " is misaligned", lane);
    }
    if (space == Space::kShared) {
        if (address >= shared_.size() || bytes > shared_.size() - address) {
            throw Fault(kIllegalAddress,
                        describe("access", space, address, bytes) + ", but the launch has " +
                            std::to_string(shared_.size()),
                        lane);
        }
        return {shared_.data() + address, &shared_log_, address};
    }
    Allocations::Allocation *allocation = allocations_.holding(address);
    if (!allocation || bytes > allocation->begin + allocation->bytes - address) {
        throw Fault(kIllegalAddress, describe("access", space, address, bytes) + ", which is not allocated", lane);
    }
    if (!allocation->log) {
        allocation->log = std::make_unique<AccessLog>(allocation->bytes);
    }
    return {reinterpret_cast<uint8_t *>(address), allocation->log.get(), address - allocation->begin};
}

const uint8_t *Memory::for_reading(Space space, uint64_t address, size_t bytes, int thread, int lane) {
    const Place place = locate(space, address, bytes, lane);
    check_arrived("read", space, address, bytes, lane);
    Conflict conflict = place.log->read(moment_for(space), place.offset, bytes, thread);
    if (space == Space::kShared && conflict == Conflict::kNone &&
        !place.log->written_by_block(now_, place.offset, bytes)) {
        conflict = Conflict::kUninitialised;
    }
    check(conflict, "read", space, address, bytes, lane);
    return place.data;
}

void Memory::write(Space space, uint64_t address, const uint8_t *data, size_t bytes, int thread, int lane) {
    const Place place = locate(space, address, bytes, lane);
    check_arrived("write", space, address, bytes, lane);
    const bool same = std::memcmp(place.data, data, bytes) == 0;
    const Conflict conflict = place.log->write(moment_for(space), place.offset, bytes, thread);
    if (!same) {
        check(conflict, "write", space, address, bytes, lane);
        std::memcpy(place.data, data, bytes);
    }
    if (space == Space::kShared) {
        hide_from_warpgroups(address, bytes, thread);
    }
}

void Memory::hide_from_warpgroups(uint64_t address, size_t bytes, int thread) {
    std::fill_n(writers_.begin() + static_cast<std::ptrdiff_t>(address), bytes, static_cast<uint16_t>(thread + 1));
    std::fill_n(shown_before_.begin() + static_cast<std::ptrdiff_t>(address), bytes, times_shown(thread));
}

uint32_t &Memory::times_shown(int thread) {
    const auto writer = static_cast<size_t>(thread);
    shown_.resize(std::max(shown_.size(), writer + 1));
    return shown_[writer];
}

void Memory::show_to_warpgroups(int thread) {
    ++times_shown(thread);
}

const uint8_t *Memory::for_reading_of_warpgroup(uint64_t address, size_t bytes, int thread, int lane) {
    const uint8_t *data = for_reading(Space::kShared, address, bytes, thread, lane);
    const auto is_hidden = [&](uint64_t byte) {
        return writers_[byte] != 0 && shown_[writers_[byte] - 1u] == shown_before_[byte];
    };
    bool hidden = false;
    for (uint64_t byte = address; byte < address + bytes; ++byte) {
        hidden = hidden || is_hidden(byte);
    }
    if (hidden) {
        throw Fault(kLaunchFailed,
                    describe("read", Space::kShared, address, bytes) +
                        " by a warpgroup: no fence.proxy.async behind what was written there",
                    lane);
    }
    return data;
}

void Memory::start_write(uint64_t address, size_t bytes, int thread, int lane) {
    const Place place = locate(Space::kShared, address, bytes, lane);
    check_arrived("copy", Space::kShared, address, bytes, lane);
    check(place.log->write(moment_for(Space::kShared), place.offset, bytes, thread), "copy", Space::kShared, address,
          bytes, lane);
    std::fill_n(under_way_.begin() + static_cast<std::ptrdiff_t>(address), bytes, true);
}

void Memory::finish_write(uint64_t address, const uint8_t *data, size_t bytes, int thread, int lane) {
    const Place place = locate(Space::kShared, address, bytes, lane);
    std::fill_n(under_way_.begin() + static_cast<std::ptrdiff_t>(address), bytes, false);
    check(place.log->write(moment_for(Space::kShared), place.offset, bytes, thread), "copy", Space::kShared, address,
          bytes, lane);
    std::memcpy(place.data, data, bytes);
    hide_from_warpgroups(address, bytes, thread);
}

void Memory::check_arrived(const char *access, Space space, uint64_t address, size_t bytes, int lane) const {
    if (space != Space::kShared) {
        return;
    }
    const auto first = under_way_.begin() + static_cast<std::ptrdiff_t>(address);
    if (std::find(first, first + static_cast<std::ptrdiff_t>(bytes), true) !=
        first + static_cast<std::ptrdiff_t>(bytes)) {
        throw Fault(kLaunchFailed,
                    describe(access, space, address, bytes) + ": a copy there is under way, nobody has waited for it",
                    lane);
    }
}

// Shared memory is the block's own, and what it held for another one is gone.
Moment Memory::moment_for(Space space) const {
    return space == Space::kShared ? Moment{now_.interval, now_.first_of_block, now_.first_of_block} : now_;
}

void Memory::next_interval() {
    if (++intervals >= AccessLog::kIntervals) {
        throw Fault(kLaunchFailed, "the launch has more intervals between barriers than can be counted");
    }
    now_.interval = intervals;
}

void Memory::start_launch() {
    if (intervals > AccessLog::kIntervals / 2) {
        allocations_.clear_logs();
        intervals = 0;
    }
    shared_log_.clear();
    now_.first_of_launch = intervals + 1;
}

void Memory::start_block() {
    next_interval();
    now_.first_of_block = now_.interval;
    std::fill(shared_.begin(), shared_.end(), kNothing);
    std::fill(under_way_.begin(), under_way_.end(), false);
    std::fill(writers_.begin(), writers_.end(), 0);
}

void Memory::pass_barrier() {
    next_interval();
}

}  // namespace hattn::emulated_cuda
