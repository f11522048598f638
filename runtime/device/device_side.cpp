#include "device_side.h"

#include <algorithm>
#include <numeric>

#include "device_workspace.h"
#include "runtime/checked.h"
#include "runtime/key_storage.h"
#include "runtime/stored_keys.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

constexpr float kUnitScale = 1.0f;
constexpr int64_t kScaleBytes = sizeof(float);

hattn_tensor one() {
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    tensor.data = const_cast<float *>(&kUnitScale);
    std::fill(tensor.extent, tensor.extent + 4, 1);
    return tensor;
}

// Where the table of a sequence starts: all keys of a ring that can be seen lie behind its first one.
int64_t first_granule(const Problem &problem, const Sequence &sequence) {
    return problem.ring ? sequence.first_key(0) / kGranuleKeys : 0;
}

GranuleRange granules_of(const Problem &problem, const hattn_attention_args &args, int64_t batch) {
    const Sequence sequence(problem, args, batch);
    const int64_t first = first_granule(problem, sequence);
    // What a ring holds; where it holds less than the rows might see, they see nothing.
    return {first, std::min(ceil_div(sequence.kv_length, kGranuleKeys) - first, most_granules(problem))};
}

int64_t most_granules_of(const Problem &problem, const hattn_attention_args &args) {
    int64_t most = 0;
    for (int64_t b = 0; b < problem.batch; ++b) {
        most = std::max(most, granules_of(problem, args, b).count);
    }
    return most;
}

// In tables of a side. most: granules of any sequence.
int64_t count_entries(const Problem &problem, int64_t most) {
    return problem.scattered() ? problem.batch * most : most;
}

std::pmr::vector<int32_t> granule_table(const Problem &problem, const hattn_attention_args &args,
                                        const hattn_tensor &rows, int64_t most, std::pmr::memory_resource *memory) {
    std::pmr::vector<int32_t> table(count_entries(problem, most), memory);
    if (!problem.scattered()) {
        std::iota(table.begin(), table.end(), 0);
        return table;
    }
    for (int64_t b = 0; b < problem.batch; ++b) {
        locate_granules(problem, args, rows, b, 0, granules_of(problem, args, b), table.data() + b * most);
    }
    return table;
}

}  // namespace

DeviceSide::DeviceSide(DeviceQueue &queue, const Problem &problem, const hattn_attention_args &args,
                       const hattn_tensor &side, const hattn_tensor &scale, const char *name,
                       std::pmr::memory_resource *memory)
    : problem_(problem),
      args_(args),
      side_(side),
      scales_keys_(scale.data && scales_keys(scale, side.extent[3])),
      channel_scales_(scale.data && !scales_keys_ ? scale : one()),
      block_scales_(scales_keys_ ? scale : one()),
      most_granules_(most_granules_of(problem, args)),
      queue_(queue),
      name_(name),
      rows_(queue, side, name),
      channels_(queue, channel_scales_, name),
      blocks_(queue, block_scales_, name),
      table_(memory),
      scale_table_(memory) {}

void DeviceSide::upload(bool scales) {
    rows_.upload();
    if (scales) {
        channels_.upload();
        blocks_.upload();
    }
}

void DeviceSide::upload_tables(std::pmr::memory_resource *memory) {
    table_ = granule_table(problem_, args_, side_, most_granules_, memory);
    granules_.emplace(queue_, table_, name_).upload();
    if (scales_keys_ && problem_.scattered()) {
        scale_table_ = granule_table(problem_, args_, block_scales_, most_granules_, memory);
        scale_granules_.emplace(queue_, scale_table_, name_).upload();
    }
}

int64_t DeviceSide::entries() const {
    return count_entries(problem_, most_granules_);
}

DeviceSide::Offsets DeviceSide::offsets(const Sequence &sequence, int64_t batch, int64_t kv_head,
                                        int64_t first_key) const {
    const GranuleRange none{first_key / kGranuleKeys, 0};
    // What entries of the table count from. (Of memory without addresses, its handle stands for one.)
    const auto first_of = [&](const hattn_tensor &rows) {
        return locate_granules(problem_, args_, rows, batch, kv_head, none, nullptr).base;
    };
    Offsets at = {};
    at.rows = rows_.byte_offset(first_of(side_)) / rows_.type().bytes();
    if (problem_.scattered()) {
        at.granules = batch * most_granules_ + none.first - first_granule(problem_, sequence);
    }
    if (scales_keys_) {
        at.block_scales = blocks_.byte_offset(first_of(block_scales_)) / kScaleBytes;
    }
    const int64_t head = channel_scales_.extent[1] > 1 ? kv_head : 0;
    at.channel_scales = channels_.byte_offset(address(channel_scales_, 0, head, 0)) / kScaleBytes;
    return at;
}

DeviceSide::Offsets DeviceSide::granule_step() const {
    Offsets step = {};
    if (problem_.scattered()) {
        step.granules = 1;
        return step;
    }
    step.rows = granule_unit(problem_, side_) * dtype_bits(side_.dtype) / (8 * rows_.type().bytes());
    step.block_scales = scales_keys_ ? granule_unit(problem_, block_scales_) : 0;
    return step;
}

bool DeviceSide::is_aligned(int64_t bytes, int64_t elements) const {
    return rows_.handle() % bytes == 0 && side_.stride[2] % elements == 0 &&
           granule_unit(problem_, side_) % elements == 0;
}

// The same memory as elements of a type. Strides are in elements of the type that it is stored in, of int4 in bytes.
DeviceView DeviceSide::view(halide_type_t type, int64_t elements) const {
    const int64_t per_byte = 8 / std::min<int64_t>(dtype_bits(side_.dtype), 8);
    return {rows_,
            type,
            {{elements, 1},
             {kGranuleKeys, side_.stride[2] / per_byte},
             {entries(), granule_unit(problem_, side_) / per_byte}}};
}

// Of a table that is not there, nothing that a kernel may look at.
DeviceView DeviceSide::table_view(const std::optional<DeviceMemory> &memory) const {
    return {memory ? *memory : channels_, halide_type_of<int32_t>(), {{entries(), 1}}};
}

DeviceSideViews::DeviceSideViews(const DeviceSide &side)
    : floats(side.view(halide_type_of<float>(), side.side_.extent[3])),
      granules(side.table_view(side.granules_)),
      type(side.side_.dtype),
      halves(side.view(halide_type_of<uint16_t>(), side.side_.extent[3])),
      bytes(side.view(halide_type_of<uint8_t>(), storage_bytes(side.side_.dtype, side.side_.extent[3]))),
      channel_scales(side.channels_, {{side.side_.extent[3], used_stride(side.channel_scales_, 3)}}),
      block_scales(side.blocks_,
                   {{ceil_div(side.side_.extent[3], kScaleBlock), used_stride(side.block_scales_, 3)},
                    {kGranuleKeys, used_stride(side.block_scales_, 2)},
                    {side.entries(), side.scales_keys_ ? granule_unit(side.problem_, side.block_scales_) : 0}}),
      scale_granules(side.table_view(side.scale_granules_ ? side.scale_granules_ : side.granules_)) {}

}  // namespace hattn
