// 32 threads that run in step, each on its own path: those that are behind go first, so that paths meet again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "program.h"

namespace hattn::emulated_cuda {

class AsyncCopies;
class Memory;

class Warp {
public:
    // Threads first_thread and on, of which the first `threads` exist. `parameters`: as Program::parameter_offsets.
    // `left_out`: an instruction that does nothing.
    Warp(const Program &program, const uint8_t *parameters, Memory &memory, int first_thread, int threads,
         std::optional<size_t> left_out = {});
    Warp(Warp &&) noexcept;
    ~Warp();

    void start(const uint32_t (&special)[kSpecialRegisters][kLanes]);
    // Until all threads are at a barrier or have ended. False: they have ended.
    bool run();
    size_t barrier() const {
        return barrier_;  // the instruction it stopped at
    }

    // For instructions.
    template<typename Raw>
    Raw *lanes(Slot slot) {
        return reinterpret_cast<Raw *>(registers_ + slot);
    }
    uint32_t active() const {
        return active_;
    }
    bool is_active(int lane) const {
        return (active_ >> lane & 1u) != 0;
    }
    bool all_active() const {
        return active_ == ~uint32_t{0};
    }
    int first_thread() const {
        return first_thread_;
    }
    const uint8_t *parameters() const {
        return parameters_;
    }
    Memory &memory() {
        return memory_;
    }
    AsyncCopies &copies(int lane);
    // Products of a warpgroup, whose sums are in so many registers, behind a fence since the last wait: until they are
    // committed and waited for nothing else may touch these, and no barrier may be passed.
    void fence_products();
    void start_multiplying(const Slot *sums, size_t count);
    void commit_products();
    void wait_for_products();

private:
    // Threads on the same path.
    struct Group {
        size_t next;
        uint32_t lanes;
    };
    Group take_group_behind();
    bool is_at_barrier(const Group &group) const;
    bool advance(Group &group);
    void stop_at_barrier(const Group &group);
    uint32_t guarded(const Instruction &instruction, uint32_t lanes);
    void check_products(const Instruction &instruction) const;
    [[noreturn]] void fail(const Instruction &instruction, const char *what) const;

    const Program &program_;
    const uint8_t *parameters_;
    Memory &memory_;
    const int first_thread_;
    const uint32_t existing_;
    std::vector<uint64_t> storage_;
    uint8_t *registers_;

    std::vector<Group> groups_;
    uint32_t active_ = 0;  // lanes that the instruction at hand is for
    size_t barrier_ = 0;
    bool stopped_ = false;
    const std::optional<size_t> left_out_;
    std::vector<AsyncCopies> copies_;  // of each lane
    std::set<Slot> sums_;              // that products are added to
    bool products_committed_ = true, products_fenced_ = false;
};

}  // namespace hattn::emulated_cuda
