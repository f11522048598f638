// The devices that kernels are compiled for.
#pragma once

#include <string>
#include <vector>

#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

struct DeviceTarget {
    const char *name = nullptr;
    const char *halide_target = nullptr;
    std::vector<Tile> flash_tiles, split_kv_tiles, merge_tiles;  // by `head`
};

const std::vector<DeviceTarget> &device_targets();
const DeviceTarget &find_device_target(const std::string &name);

}  // namespace hattn::schedules::gpu
