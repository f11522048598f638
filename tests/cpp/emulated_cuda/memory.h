// The memory that a kernel may touch, and who touches it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "race_detector.h"

namespace hattn::emulated_cuda {

// What the driver has given out. Addresses are the host's.
class Allocations {
public:
    struct Allocation {
        std::unique_ptr<uint8_t[]> storage;
        uint64_t begin = 0;
        uint64_t bytes = 0;
        std::unique_ptr<AccessLog> log;  // made when a kernel first touches it
    };

    uint64_t allocate(uint64_t bytes);
    bool free(uint64_t begin);
    Allocation *holding(uint64_t address);  // null: none
    void clear_logs();

private:
    std::map<uint64_t, Allocation> by_begin_;
    Allocation *last_ = nullptr;
};

enum class Space { kGlobal, kShared };

// As a block of threads sees it.
class Memory {
public:
    Memory(Allocations &allocations, size_t shared_bytes);

    // Where `bytes` at an address are, for a thread of the block that reads or writes them; `lane` of its warp is told
    // with the fault if it must not.
    const uint8_t *for_reading(Space space, uint64_t address, size_t bytes, int thread, int lane);
    // Writes, or leaves what is there where it is the same.
    void write(Space space, uint64_t address, const uint8_t *data, size_t bytes, int thread, int lane);

    // Into shared memory, where nobody may read or write until it is finished.
    void start_write(uint64_t address, size_t bytes, int thread, int lane);
    void finish_write(uint64_t address, const uint8_t *data, size_t bytes, int thread, int lane);

    // For an instruction of a warpgroup, which sees what threads have written when they say so.
    const uint8_t *for_reading_of_warpgroup(uint64_t address, size_t bytes, int thread, int lane);
    void show_to_warpgroups(int thread);

    void start_launch();
    void start_block();
    void pass_barrier();

private:
    struct Place {
        uint8_t *data;
        AccessLog *log;
        size_t offset;  // in the log
    };
    Place locate(Space space, uint64_t address, size_t bytes, int lane);
    Moment moment_for(Space space) const;
    void check_arrived(const char *access, Space space, uint64_t address, size_t bytes, int lane) const;
    void next_interval();
    void hide_from_warpgroups(uint64_t address, size_t bytes, int thread);
    uint32_t &times_shown(int thread);

    Allocations &allocations_;
    std::vector<uint8_t> shared_;
    std::vector<bool> under_way_;  // of its bytes
    // Of its bytes: which thread wrote it last, counted from 1, and after how many times of showing what it had written
    // to warpgroups; and of threads how often they have done so.
    std::vector<uint16_t> writers_;
    std::vector<uint32_t> shown_before_, shown_;
    AccessLog shared_log_;
    Moment now_;
};

}  // namespace hattn::emulated_cuda
