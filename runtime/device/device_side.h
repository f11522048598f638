// Keys or values of an execute on a device, in any type of storage: rows, scales, and where granules of them lie.
#pragma once

#include <memory_resource>
#include <optional>
#include <vector>

#include "device_memory.h"
#include "runtime/problem.h"
#include "runtime/sequence.h"

namespace hattn {

class DeviceSide {
public:
    // scale: of args, as `side` is; without data, if there is none.
    DeviceSide(DeviceQueue &queue, const Problem &problem, const hattn_attention_args &args, const hattn_tensor &side,
               const hattn_tensor &scale, const char *name, std::pmr::memory_resource *memory);

    void upload(bool scales);
    // After everything else of an execute that is on the host: where granules are, for kernels that look it up.
    void upload_tables(std::pmr::memory_resource *memory);

    // Where a unit's part starts, see UnitRecord.
    struct Offsets {
        int64_t rows, granules, channel_scales, block_scales;
    };
    Offsets offsets(const Sequence &sequence, int64_t batch, int64_t kv_head, int64_t first_key) const;
    Offsets granule_step() const;  // what they grow by from one granule of keys to the next
    // Whether all rows of a unit start at multiples of so many bytes, if it starts at one of so many elements.
    bool is_aligned(int64_t bytes, int64_t elements) const;

private:
    friend struct DeviceSideViews;

    DeviceView view(halide_type_t type, int64_t elements) const;
    int64_t entries() const;
    DeviceView table_view(const std::optional<DeviceMemory> &memory) const;

    const Problem &problem_;
    const hattn_attention_args &args_;
    const hattn_tensor &side_;
    const bool scales_keys_;                            // each key has scales of its own
    const hattn_tensor channel_scales_, block_scales_;  // one of them as given, otherwise the number 1
    // Of granules: one table for all sequences where each stores its keys side by side, else one for each, which starts
    // where a ring has its first key. Scales have a table of their own if theirs differs.
    const int64_t most_granules_;  // of any sequence: entries of a table
    DeviceQueue &queue_;
    const char *name_;
    DeviceMemory rows_, channels_, blocks_;
    std::pmr::vector<int32_t> table_, scale_table_;
    std::optional<DeviceMemory> granules_, scale_granules_;
};

// Arguments of kernels, see AttentionInputs and StoredSide in generators.
struct DeviceSideViews {
    explicit DeviceSideViews(const DeviceSide &side);

    DeviceView floats, granules;
    int32_t type, lines = 0;
    DeviceView halves, bytes, channel_scales, block_scales, scale_granules;
};

}  // namespace hattn
