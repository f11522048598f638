#include "targets.h"

#include <stdexcept>

namespace hattn::schedules::gpu {

namespace {

// Of which a multiprocessor has two, by registers and shared memory (decision 0090).
constexpr Tile warpgroup_tile(int rows, int keys, int head, int buffers) {
    return {.rows = rows,
            .keys = keys,
            .head = head,
            .slices = 4,
            .thread_rows = 2,
            .blocks = 2,
            .warpgroups = true,
            .buffers = buffers};
}

}  // namespace

const std::vector<DeviceTarget> &device_targets() {
    static const std::string options = "-no_asserts-no_bounds_query-no_runtime-user_context";
    static const std::string opencl = "x86-64-linux-sse41-opencl" + options;
    static const std::string cuda = "x86-64-linux-sse41-cuda-cuda_capability_80" + options;
    static const std::vector<DeviceTarget> targets = {
        {
            // Up to 48 KiB of shared memory; blocks that are small enough to be compiled for a CPU in seconds.
            .name = "opencl",
            .halide_target = opencl.c_str(),
            .compiled_when_loaded = true,
            .flash_tiles = {{16, 32, 32, 8, 2, 2},
                            {16, 32, 64, 8, 2, 2},
                            {16, 32, 96, 8, 2, 2},
                            {16, 32, 128, 8, 2, 2},
                            {8, 16, 192, 16, 1, 2},
                            {8, 16, 256, 16, 1, 2}},
            .split_kv_tiles = {{8, 32, 32, 8, 1, 2},
                               {8, 32, 64, 8, 1, 2},
                               {8, 32, 96, 8, 1, 2},
                               {8, 32, 128, 8, 1, 2},
                               {8, 16, 192, 16, 1, 2},
                               {8, 16, 256, 16, 1, 2}},
            .merge_tiles = {{1, 32, 256, 1}},
            .append_tiles = {{8, 0, 0, 32, 1}},
            .plain_tiles = {{8, 512, 0, 32, 1}},
        },
        {
            .name = "cuda",
            .halide_target = cuda.c_str(),
            .flash_tiles =
                {{64, 64, 32, 8, 4},
                 {64, 64, 64, 16, 4},
                 {64, 32, 96, 8, 4},
                 {.rows = 64, .keys = 64, .head = 128, .slices = 16, .thread_rows = 8, .unroll = 4, .head_unroll = 8},
                 {64, 32, 192, 16, 4, 4},
                 {32, 32, 256, 16, 4}},
            .split_kv_tiles = {{2, 128, 32, 4, 2, 8, 64, 2},
                               {2, 128, 64, 8, 2, 8, 32, 2},
                               {2, 64, 96, 12, 2, 8, 16, 3},
                               {2, 64, 128, 16, 2, 8, 16, 3},
                               {2, 32, 192, 24, 2, 8, 8, 3},
                               {2, 32, 256, 32, 2, 8, 8, 2},
                               {8, 64, 32, 8, 1},
                               {8, 64, 64, 16, 1},
                               {8, 64, 96, 8, 1},
                               {8, 64, 128, 16, 1},
                               {8, 64, 192, 16, 1},
                               {8, 64, 256, 16, 1}},
            .merge_tiles = {{1, 32, 256, 4}},
            .matrix_flash_tiles = {{64, 64, 64, 4, 2},
                                   {128, 64, 64, 4, 4},
                                   {64, 64, 96, 4, 2},
                                   {128, 64, 96, 4, 4},
                                   {64, 64, 128, 4, 2},
                                   {128, 64, 128, 4, 4},
                                   {64, 64, 192, 4, 2},
                                   {64, 64, 256, 4, 2},
                                   {64, 32, 256, 8, 2}},  // for less than 163 KiB of shared memory
            .matrix_hook_tiles =
                {{64, 32, 64, 4, 2}, {64, 32, 96, 4, 2}, {64, 32, 128, 4, 2}, {64, 64, 192, 8, 2}, {64, 32, 256, 8, 2}},
            .warpgroup_flash_tiles = {warpgroup_tile(128, 64, 64, 2), warpgroup_tile(128, 64, 96, 2),
                                      warpgroup_tile(128, 64, 128, 2), warpgroup_tile(64, 96, 192, 1),
                                      warpgroup_tile(64, 64, 256, 1)},
            // Four warps share the rows of a kv head, which are few.
            .matrix_split_kv_tiles = {{16, 128, 64, 16, 2},
                                      {16, 64, 96, 16, 2},
                                      {16, 64, 128, 16, 2},
                                      {16, 64, 192, 16, 2},
                                      {16, 32, 256, 16, 2}},
            .append_tiles = {{8, 0, 0, 32, 1}},
            .plain_tiles = {{8, 512, 0, 32, 1}},
        },
    };
    return targets;
}

const DeviceTarget &find_device_target(const std::string &name) {
    for (const DeviceTarget &target : device_targets()) {
        if (name == target.name) {
            return target;
        }
    }
    throw std::invalid_argument("unknown device target '" + name + "'");
}

}  // namespace hattn::schedules::gpu
