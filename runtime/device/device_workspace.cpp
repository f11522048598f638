#include "device_workspace.h"

#include <algorithm>

#include "device_plan.h"
#include "packed_units.h"
#include "runtime/checked.h"
#include "runtime/tensor.h"
#include "runtime/units.h"
#include "unit_record.h"

namespace hattn {

namespace {

constexpr const char *kWhat = "device_workspace";
constexpr int64_t kFloatBytes = sizeof(float);
// Units of unfused between whose two launches weights are kept: 32 MiB of 8 rows and 512 keys each, and enough blocks
// for any GPU.
constexpr int64_t kMostWeightUnits = 2048;
constexpr int64_t kHostAlignment = 64;  // more than any element of a table needs

// Sums of sizes, each rounded up to an alignment.
class Sizes {
public:
    explicit Sizes(int64_t alignment) : alignment_(alignment) {}
    void add(int64_t count, int64_t bytes, int64_t times = 1) {
        const int64_t size = std::max<int64_t>(checked_multiply(count, bytes, kWhat), 1);
        total_ = checked_add(total_, checked_multiply(round_up(size, alignment_), times, kWhat), kWhat);
    }
    size_t total() const {
        return static_cast<size_t>(total_);
    }

private:
    int64_t alignment_, total_ = 0;
};

void count_units(const Problem &problem, const DevicePlan &plan, DeviceWorkspace &workspace) {
    const int64_t unit_rows = std::max<int64_t>(1, plan.attention->tile.rows / plan.heads);
    const int64_t blocks = most_row_blocks(problem, unit_rows);
    if (plan.split_keys == 0) {
        // Rows past a sequence's length are tiles of their own.
        workspace.attention_units = checked_multiply(problem.query_heads, blocks + problem.batch, kWhat);
        return;
    }
    // Keys that a tile sees start up to a granule before the first.
    const int64_t splits = ceil_div(problem.kv_length + 2 * kGranuleKeys, plan.split_keys);
    const int64_t tiles =
        checked_multiply(problem.kv_heads * ceil_div(problem.group_size(), plan.heads), blocks, kWhat);
    workspace.attention_units = checked_multiply(tiles, splits, kWhat);
    workspace.merge_units = checked_multiply(problem.query_heads, problem.total_rows(), kWhat);
    workspace.state_rows = checked_multiply(workspace.attention_units, plan.attention->tile.rows, kWhat);
    if (plan.values) {
        workspace.weight_units = std::min(workspace.attention_units, kMostWeightUnits);
        workspace.weight_batches = ceil_div(workspace.attention_units, std::max<int64_t>(workspace.weight_units, 1));
    }
}

void count_score_units(const Problem &problem, const DeviceTile &tile, DeviceWorkspace &workspace) {
    const int64_t rows = checked_multiply(problem.batch * problem.query_heads,
                                          ceil_div(problem.query_length, int64_t{tile.rows}), kWhat);
    workspace.score_units = checked_multiply(rows, ceil_div(problem.kv_length, int64_t{tile.keys}) + 1, kWhat);
}

// Of unfused: what its two kernels leave each other, and their tables.
void add_weights(const DevicePlan &plan, const DeviceWorkspace &workspace, Sizes &host, Sizes &device) {
    const DeviceTile &tile = plan.attention->tile;
    host.add(workspace.weight_units, sizeof(UnfusedRecord), workspace.weight_batches);
    for (Sizes *sizes : {&host, &device}) {
        sizes->add(PackedUnits::most_records(workspace.weight_units), sizeof(UnfusedRecord), workspace.weight_batches);
    }
    const int64_t rows = checked_multiply(workspace.weight_units, tile.rows, kWhat);
    device.add(checked_multiply(rows, tile.keys, kWhat), kFloatBytes);
    device.add(rows, kFloatBytes);
    device.add(rows, kFloatBytes);
}

}  // namespace

int64_t most_granules(const Problem &problem) {
    return ceil_div(problem.kv_length, kGranuleKeys) + (problem.ring ? 1 : 0);
}

DeviceWorkspace lay_out_device_workspace(const Problem &problem, const DevicePlan &plan) {
    DeviceWorkspace workspace;
    if (problem.batch == 0 || problem.query_length == 0) {
        return workspace;
    }
    count_units(problem, plan, workspace);
    if (plan.scores) {
        count_score_units(problem, plan.scores->tile, workspace);
    }
    workspace.granules = checked_multiply(problem.scattered() ? problem.batch : 1, most_granules(problem), kWhat);
    Sizes host(kHostAlignment), device(kPartAlignment), uploads(kDeviceAlignment);
    host.add(workspace.attention_units, sizeof(UnitRecord));
    host.add(workspace.merge_units, sizeof(MergeRecord));
    host.add(workspace.score_units, sizeof(ScoreRecord));
    for (Sizes *sizes : {&host, &device, &uploads}) {
        sizes->add(PackedUnits::most_records(workspace.attention_units), sizeof(UnitRecord));
        sizes->add(PackedUnits::most_records(workspace.merge_units), sizeof(MergeRecord));
        sizes->add(PackedUnits::most_records(workspace.score_units), sizeof(ScoreRecord));
        for (const hattn_dtype side : {problem.k_dtype, problem.v_dtype}) {
            sizes->add(workspace.granules, sizeof(int32_t));
            sizes->add(is_quantized(side) ? workspace.granules : 1, sizeof(int32_t));  // of scales
            sizes->add(1, kFloatBytes);  // scales of channels that are none
            sizes->add(1, kFloatBytes);  // scales of keys that are none
        }
        sizes->add(problem.query_heads, kFloatBytes);  // slopes
        sizes->add(problem.query_heads, kFloatBytes);  // sinks
        sizes->add(1, kFloatBytes);                    // bias that is none
        sizes->add(1, 1);                              // mask that is none
    }
    device.add(checked_multiply(problem.query_heads, problem.total_rows(), kWhat),
               kFloatBytes);  // log-sum-exp, if not wanted
    device.add(checked_multiply(std::max<int64_t>(workspace.state_rows, 1), problem.value_dim, kWhat), kFloatBytes);
    device.add(std::max<int64_t>(workspace.state_rows, 1), kFloatBytes);
    if (plan.values) {
        add_weights(plan, workspace, host, device);
    }
    workspace.upload_bytes = uploads.total();
    host.add(static_cast<int64_t>(workspace.upload_bytes), 1);
    workspace.host_bytes = host.total();
    workspace.device_bytes = device.total();
    return workspace;
}

}  // namespace hattn
