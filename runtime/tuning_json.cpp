#include "tuning_json.h"

#include <nlohmann/json.hpp>

#include "force.h"
#include "kernel_registry.h"
#include "tensor.h"

namespace hattn {

using nlohmann::ordered_json;

ordered_json stamp_json(const MachineStamp &stamp) {
    return {{"library", stamp.library},
            {"kernels", stamp.kernels},
            {"cpu", stamp.cpu},
            {"caches", {{"l1d", stamp.l1d_bytes}, {"l2", stamp.l2_bytes}, {"l3", stamp.l3_bytes}}},
            {"cores", stamp.cores}};
}

ordered_json class_json(const TuningFamily &family, const TuningCell &cell, const DeviceStamp *device) {
    ordered_json json = {{"algorithm", algorithm_name(family.algorithm)},
                         {"dtype", dtype_name(family.dtype)},
                         {"head", int64_t{1} << family.head_exponent},
                         {"group", int64_t{1} << family.group_exponent},
                         {"hooks", hook_name_list(family.hooks)},
                         {"target", device ? device->target : family.target->name},
                         {"rows", int64_t{1} << cell.rows},
                         {"keys", int64_t{1} << cell.keys},
                         {"threads", 0}};
    if (device) {
        json["device"] = device_stamp_json(*device);
    }
    return json;
}

ordered_json tile_json(const KernelTile &tile) {
    return {{"rows", tile.rows},
            {"keys", tile.keys},
            {"row_vectors", tile.row_vectors},
            {"key_unroll", tile.key_unroll},
            {"value_unroll", tile.value_unroll}};
}

ordered_json tile_json(const DeviceTile &tile) {
    return {{"rows", tile.rows},
            {"keys", tile.keys},
            {"head", tile.head},
            {"slices", tile.slices},
            {"thread_rows", tile.thread_rows},
            {"warpgroups", tile.warpgroups}};
}

}  // namespace hattn
