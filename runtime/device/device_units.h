// Divides an execute on a device into the units of its launches.
#pragma once

#include <memory_resource>
#include <vector>

#include "device_memory.h"
#include "device_plan.h"
#include "runtime/sequence.h"
#include "unit_record.h"

namespace hattn {

// The tensors of an execute on the device.
struct DeviceTensors {
    DeviceMemory query, key, value, output, lse, bias, mask;
};

// Where the granules of keys lie: one table for all sequences where each stores its keys side by side, else one for
// each, which starts where a ring has its first key.
struct GranuleTables {
    std::pmr::vector<int32_t> key, value;
    int64_t per_sequence = 0;  // entries; 0: all share one
};
GranuleTables make_granule_tables(const Problem &problem, const hattn_attention_args &args,
                                  std::pmr::memory_resource *memory);

struct DeviceUnits {
    std::pmr::vector<UnitRecord> attention;
    std::pmr::vector<MergeRecord> merges;  // with split_kv: one per row and head
    int64_t state_rows = 0;                // of the pool of partial states
};

// Index of a sink that is none, behind those of all heads.
inline int32_t no_sinks(const Problem &problem) {
    return static_cast<int32_t>(problem.query_heads);
}

// lse: as in args, or of memory that nobody reads.
DeviceUnits make_device_units(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args,
                              const hattn_tensor &lse, const DeviceTensors &tensors, const GranuleTables &tables,
                              std::pmr::memory_resource *memory);

}  // namespace hattn
