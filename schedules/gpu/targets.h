// The devices that kernels are compiled for.
#pragma once

#include <string>
#include <vector>

#include "schedules/gpu/tile.h"

namespace hattn::schedules::gpu {

struct DeviceTarget {
    const char *name = nullptr;
    const char *halide_target = nullptr;
    bool compiled_when_loaded = false;                           // kernels are text for a compiler, see loaded_code.h
    std::vector<Tile> flash_tiles, split_kv_tiles, merge_tiles;  // by `head`
    std::vector<Tile> matrix_flash_tiles, matrix_hook_tiles;     // likewise, of tensor cores: without hooks, and with
    std::vector<Tile> warpgroup_flash_tiles;                     // likewise, of warpgroups, without hooks
    std::vector<Tile> matrix_split_kv_tiles;
    std::vector<Tile> append_tiles;
    std::vector<Tile> plain_tiles;  // of all others; `keys` are all that a tile has
};

const std::vector<DeviceTarget> &device_targets();
const DeviceTarget &find_device_target(const std::string &name);

}  // namespace hattn::schedules::gpu
