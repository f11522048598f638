// Divides an execute on a device into the units of its launches.
#pragma once

#include <memory_resource>
#include <vector>

#include "device_memory.h"
#include "device_plan.h"
#include "device_side.h"
#include "packed_units.h"
#include "runtime/sequence.h"
#include "unit_record.h"

namespace hattn {

// The tensors of an execute on the device.
struct DeviceTensors {
    DeviceMemory query;
    DeviceSide key, value;
    DeviceMemory output, lse, bias, mask;
};

struct DeviceUnits {
    std::pmr::vector<UnitRecord> attention;
    std::pmr::vector<MergeRecord> merges;  // where keys are split: one per row and head
    std::pmr::vector<ScoreRecord> scores;
    int64_t state_rows = 0;  // of the pool of partial states
    // While units are added, only how many are innermost in the last tile.
    UnitOrder attention_order = {}, merge_order = {};
};

// Where sinks of a unit start that has none (UnitColumns::optional).
inline constexpr int32_t kNoSinks = -1;

// lse: as in args, or of memory that nobody reads. scores: the score output, or null.
DeviceUnits make_device_units(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args,
                              const hattn_tensor &lse, const DeviceTensors &tensors, const DeviceMemory *scores,
                              std::pmr::memory_resource *memory);

}  // namespace hattn
