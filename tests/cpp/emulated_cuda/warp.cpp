#include "warp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "async_copies.h"
#include "fault.h"

namespace hattn::emulated_cuda {

namespace {

constexpr size_t kRegisterAlignment = 64;  // of the register file: whole vectors of the host

template<typename Raw>
void fill(Raw *lanes, uint64_t bits) {
    std::fill(lanes, lanes + kLanes, static_cast<Raw>(bits));
}

}  // namespace

Warp::Warp(const Program &program, const uint8_t *parameters, Memory &memory, int first_thread, int threads,
           std::optional<size_t> left_out)
    : program_(program),
      parameters_(parameters),
      memory_(memory),
      first_thread_(first_thread),
      existing_(threads >= kLanes ? ~uint32_t{0} : (uint32_t{1} << threads) - 1),
      // Registers that nothing has written to are NaN as numbers.
      storage_((program.register_file_bytes + kRegisterAlignment) / sizeof(uint64_t), ~uint64_t{0}),
      left_out_(left_out),
      copies_(kLanes) {
    void *start = storage_.data();
    size_t room = storage_.size() * sizeof(uint64_t);
    registers_ = static_cast<uint8_t *>(std::align(kRegisterAlignment, program.register_file_bytes, start, room));
    for (const Constant &constant : program.constants) {
        if (constant.bytes == 8) {
            fill(lanes<uint64_t>(constant.slot), constant.bits);
        } else {
            fill(lanes<uint32_t>(constant.slot), constant.bits);
        }
    }
}

Warp::Warp(Warp &&) noexcept = default;
Warp::~Warp() = default;

AsyncCopies &Warp::copies(int lane) {
    return copies_[static_cast<size_t>(lane)];
}

void Warp::start(const uint32_t (&special)[kSpecialRegisters][kLanes]) {
    for (int i = 0; i < kSpecialRegisters; ++i) {
        std::memcpy(lanes<uint32_t>(program_.special[i]), special[i], sizeof(special[i]));
    }
    groups_ = {{0, existing_}};
    sums_.clear();
    products_committed_ = true;
    products_fenced_ = false;
    copies_.assign(kLanes, {});
}

bool Warp::is_at_barrier(const Group &group) const {
    return group.next < program_.code.size() && program_.code[group.next].flow == Flow::kBarrier;
}

// Those at a barrier wait for others, whatever the order of the code.
Warp::Group Warp::take_group_behind() {
    const auto place = [&](const Group &group) { return std::pair(is_at_barrier(group), group.next); };
    const auto behind = std::min_element(groups_.begin(), groups_.end(),
                                         [&](const Group &a, const Group &b) { return place(a) < place(b); });
    Group taken{behind->next, 0};
    for (const Group &group : groups_) {
        taken.lanes |= group.next == taken.next ? group.lanes : 0u;
    }
    std::erase_if(groups_, [&](const Group &group) { return group.next == taken.next; });
    return taken;
}

bool Warp::run() {
    stopped_ = false;
    while (!groups_.empty() && !stopped_) {
        Group group = take_group_behind();
        size_t limit = program_.code.size();
        for (const Group &other : groups_) {
            limit = other.next > group.next ? std::min(limit, other.next) : limit;
        }
        const size_t paths = groups_.size();
        do {
            if (!advance(group)) {
                break;
            }
        } while (group.next < limit && groups_.size() == paths && (paths == 0 || !is_at_barrier(group)));
        if (group.lanes != 0) {
            groups_.push_back(group);
        }
    }
    return stopped_;
}

uint32_t Warp::guarded(const Instruction &instruction, uint32_t among) {
    if (instruction.guard == kNoSlot) {
        return among;
    }
    const uint32_t *predicate = lanes<uint32_t>(instruction.guard);
    uint32_t set = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        set |= (predicate[lane] & 1u) << lane;
    }
    return among & (instruction.guard_negated ? ~set : set);
}

void Warp::fail(const Instruction &instruction, const char *what) const {
    throw Fault(kLaunchFailed,
                std::string(what) + ", at PTX line " + std::to_string(instruction.line) + ": " + *instruction.text);
}

void Warp::stop_at_barrier(const Group &group) {
    // Threads on other paths are at other barriers, or they would have gone first; or they have ended.
    if (group.lanes != existing_ || guarded(program_.code[group.next], group.lanes) != group.lanes) {
        fail(program_.code[group.next], "divergent barrier: not all threads of a warp arrive");
    }
    if (!sums_.empty()) {
        fail(program_.code[group.next], "a barrier is passed while products run that nobody has waited for");
    }
    barrier_ = group.next;
    stopped_ = true;
}

void Warp::fence_products() {
    products_fenced_ = true;
}

void Warp::start_multiplying(const Slot *sums, size_t count) {
    if (!products_fenced_) {
        throw Fault(kLaunchFailed, "products are started without a wgmma.fence since the last wait");
    }
    sums_.insert(sums, sums + count);
    products_committed_ = false;
}

void Warp::commit_products() {
    products_committed_ = true;
}

void Warp::wait_for_products() {
    if (!products_committed_) {
        throw Fault(kLaunchFailed, "products are waited for that are in no group");
    }
    sums_.clear();
    products_fenced_ = false;
}

void Warp::check_products(const Instruction &instruction) const {
    const bool multiplies = instruction.text->starts_with("wgmma.");
    for (const Slot operand : instruction.operands) {
        if (!multiplies && sums_.count(operand) != 0) {
            fail(instruction, "a sum of products is used that nobody has waited for");
        }
    }
}

// One instruction. False: the group has stopped or ended.
bool Warp::advance(Group &group) {
    const Instruction &instruction = program_.code[group.next];
    if (instruction.flow == Flow::kBarrier) {
        stop_at_barrier(group);
        ++group.next;
        return false;
    }
    active_ = group.next == left_out_ ? 0 : guarded(instruction, group.lanes);
    ++group.next;
    switch (instruction.flow) {
    case Flow::kNext:
        if (active_ != 0) {
            if (!sums_.empty()) {
                check_products(instruction);
            }
            try {
                instruction.execute(instruction, *this);
            } catch (const Fault &fault) {
                const std::string thread =
                    fault.lane < 0 ? "" : "thread " + std::to_string(first_thread_ + fault.lane) + ": ";
                throw Fault(fault.result, thread + fault.what() + ", at PTX line " + std::to_string(instruction.line) +
                                              ": " + *instruction.text);
            }
        }
        return true;
    case Flow::kBranch:
        if (active_ == group.lanes) {
            group.next = instruction.target;
        } else if (active_ != 0) {
            group.lanes &= ~active_;
            groups_.push_back({instruction.target, active_});
        }
        return true;
    default:
        for (int lane = 0; lane < kLanes; ++lane) {
            if (is_active(lane) && !copies(lane).is_done()) {
                fail(instruction, "a thread ends while copies of it are under way");
            }
        }
        if (active_ != 0 && !sums_.empty()) {
            fail(instruction, "a thread ends while products run that nobody has waited for");
        }
        group.lanes &= ~active_;
        return group.lanes != 0;
    }
}

}  // namespace hattn::emulated_cuda
