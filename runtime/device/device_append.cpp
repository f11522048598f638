#include "device_append.h"

#include <algorithm>

#include "device_choice.h"
#include "runtime/checked.h"

namespace hattn {

namespace {

constexpr float kNoAngle = 0.0f, kNoScale = 1.0f;
constexpr const char *kAppended = "rows to be appended";

// These kernels serve heads of any size.
const DeviceKernelInfo &kernel_of(const DeviceQueue &queue, KernelKind kind) {
    return device_kernel(device_limits(queue.target, queue.device_id), kind, 0, 0);
}

// Visits rows of one head, as many as a unit has: visit(run, head, first of its rows, their number).
template<typename Visit>
void for_each_unit(std::span<const RowRun> runs, int64_t heads, int64_t tile_rows, Visit visit) {
    for (const RowRun &run : runs) {
        for (int64_t h = 0; h < heads; ++h) {
            for (int64_t i = 0; i < run.rows; i += tile_rows) {
                visit(run, h, i, static_cast<int32_t>(std::min(tile_rows, run.rows - i)));
            }
        }
    }
}

int32_t offset(const DeviceRows &rows, int64_t page, int64_t head, int64_t row) {
    return static_cast<int32_t>(rows.memory.offset(rows.tensor, page, head, row));
}

int64_t count_units(std::span<const RowRun> runs, int64_t heads, int64_t tile_rows) {
    int64_t count = 0;
    for (const RowRun &run : runs) {
        count += heads * ceil_div(run.rows, tile_rows);
    }
    return count;
}

std::pmr::vector<AppendRecord> append_records(const DeviceRows &from, const DeviceRows &to,
                                              std::span<const RowRun> runs, int64_t pairs, int64_t tile_rows,
                                              std::pmr::memory_resource *host) {
    std::pmr::vector<AppendRecord> records(host);
    records.reserve(count_units(runs, to.tensor.extent[1], tile_rows));
    for_each_unit(runs, to.tensor.extent[1], tile_rows, [&](const RowRun &run, int64_t h, int64_t i, int32_t count) {
        records.push_back({offset(from, run.from, h, run.from_row + i), static_cast<int32_t>((run.angles + i) * pairs),
                           offset(to, run.to, h, run.to_row + i), count});
    });
    return records;
}

std::pmr::vector<QuantizeRecord> quantize_records(const DeviceRows &from, const DeviceRows &to,
                                                  const DeviceRows &scales, bool computes_scales,
                                                  std::span<const RowRun> runs, int64_t tile_rows,
                                                  std::pmr::memory_resource *host) {
    std::pmr::vector<QuantizeRecord> records(host);
    records.reserve(count_units(runs, to.tensor.extent[1], tile_rows));
    for_each_unit(runs, to.tensor.extent[1], tile_rows, [&](const RowRun &run, int64_t h, int64_t i, int32_t count) {
        const int64_t at = to.memory.offset(to.tensor, run.to, h, run.to_row + i);
        QuantizeRecord unit = {offset(from, run.from, h, run.from_row + i), 0, 0,
                               static_cast<int32_t>(storage_bytes(to.tensor.dtype, at)), count};
        if (computes_scales) {
            unit.block_scales = offset(scales, run.to, h, run.to_row + i);
        } else {
            unit.channel_scales = offset(scales, 0, scales.tensor.extent[1] > 1 ? h : 0, 0);
        }
        records.push_back(unit);
    });
    return records;
}

int64_t elements_of(const hattn_tensor &tensor) {
    int64_t elements = 1;
    for (const int64_t extent : tensor.extent) {
        elements = checked_multiply(elements, std::max<int64_t>(extent, 1), kAppended);
    }
    return elements;
}

DeviceMemory memory_of(DeviceQueue &queue, const hattn_tensor &tensor, const char *name) {
    const float *no_host = nullptr;
    return tensor.data ? DeviceMemory(queue, tensor, name) : DeviceMemory(queue, no_host, elements_of(tensor), name);
}

std::pmr::vector<float> staged(const std::vector<float> *values, std::pmr::memory_resource *host) {
    return values ? std::pmr::vector<float>(values->begin(), values->end(), host)
                  : std::pmr::vector<float>(1, kNoAngle, host);
}

DeviceView rows_view(const DeviceRows &rows, halide_type_t type) {
    return {rows.memory, type, {{rows.tensor.extent[3], 1}, {1, rows.tensor.stride[2]}}};
}

}  // namespace

hattn_tensor wide_rows(int64_t heads, int64_t dim, std::span<const RowRun> runs) {
    int64_t count = 0;
    for (const RowRun &run : runs) {
        count += run.rows;
    }
    hattn_tensor floats = HATTN_TENSOR_INIT;
    const int64_t extent[4] = {1, heads, count, dim}, stride[4] = {heads * count * dim, count * dim, dim, 1};
    std::copy(extent, extent + 4, floats.extent);
    std::copy(stride, stride + 4, floats.stride);
    return floats;
}

std::pmr::vector<RowRun> wide_runs(std::span<const RowRun> runs, WideEnd end, std::pmr::memory_resource *host) {
    std::pmr::vector<RowRun> wide(runs.begin(), runs.end(), host);
    int64_t row = 0;
    for (RowRun &run : wide) {
        (end == WideEnd::kWritten ? run.to : run.from) = 0;
        (end == WideEnd::kWritten ? run.to_row : run.from_row) = row;
        row += run.rows;
    }
    return wide;
}

void add_wide_bytes(int64_t heads, int64_t dim, std::span<const RowRun> runs, StagingBytes &bytes) {
    for (int end = 0; end < 2; ++end) {
        bytes.add_on_host(static_cast<int64_t>(runs.size_bytes()));
    }
    bytes.add_on_device(checked_multiply(wide_rows(heads, dim, runs).stride[0], sizeof(float), kAppended));
}

DeviceRows::DeviceRows(DeviceQueue &queue, const hattn_tensor &given, const char *name)
    : tensor(given), memory(memory_of(queue, given, name)), drained_(queue) {
    memory.upload();
}

void RowConversion::add_bytes(const DeviceQueue &queue, int64_t heads, std::span<const RowRun> runs,
                              const RowAngles *angles, StagingBytes &bytes) {
    const int64_t units = count_units(runs, heads, kernel_of(queue, KernelKind::kAppend).tile.rows);
    bytes.add_on_host(checked_multiply(units, sizeof(AppendRecord), kAppended));
    bytes.add_table(checked_multiply(PackedUnits::most_records(units), sizeof(AppendRecord), kAppended));
    for (int i = 0; i < 2; ++i) {
        bytes.add_table(static_cast<int64_t>((angles ? angles->cosines.size() : 1) * sizeof(float)));
    }
}

RowConversion::RowConversion(DeviceQueue &queue, const DeviceRows &from, const DeviceRows &to,
                             std::span<const RowRun> runs, const RowAngles *angles, std::pmr::memory_resource *host)
    : records_(append_records(from, to, runs, angles ? angles->pairs : 0,
                              kernel_of(queue, KernelKind::kAppend).tile.rows, host)),
      host_cosines_(staged(angles ? &angles->cosines : nullptr, host)),
      host_sines_(staged(angles ? &angles->sines : nullptr, host)),
      cosines_(queue, host_cosines_, "rope"),
      sines_(queue, host_sines_, "rope"),
      table_(queue, std::span<const AppendRecord>(records_), host),
      drained_(queue) {
    cosines_.upload();
    sines_.upload();
    const int64_t pairs = angles ? angles->pairs : 0, width = std::max<int64_t>(pairs, 1);
    DeviceView rows = rows_view(from, kFloat), halves = rows_view(from, kHalf);
    DeviceView cosines(cosines_, {{width, 1}, {1, pairs}}), sines(sines_, {{width, 1}, {1, pairs}});
    DeviceView output = rows_view(to, kFloat), output_halves(to.memory, kHalf, {{1, 1}});
    int32_t type = from.tensor.dtype, output_type = to.tensor.dtype, pair_count = static_cast<int32_t>(pairs);
    int32_t interleaved = angles && angles->interleaved ? 1 : 0;
    queue.types = {.query = from.tensor.dtype, .output = to.tensor.dtype};
    launch(queue, kernel_of(queue, KernelKind::kAppend), table_, &type, rows, halves, cosines, sines, &pair_count,
           &interleaved, &output_type, output_halves, output);
}

void RowQuantization::add_bytes(const DeviceQueue &queue, int64_t heads, std::span<const RowRun> runs,
                                StagingBytes &bytes) {
    const int64_t units = count_units(runs, heads, kernel_of(queue, KernelKind::kQuantize).tile.rows);
    bytes.add_on_host(checked_multiply(units, sizeof(QuantizeRecord), kAppended));
    bytes.add_table(checked_multiply(PackedUnits::most_records(units), sizeof(QuantizeRecord), kAppended));
    bytes.add_on_device(sizeof(kNoScale));
}

RowQuantization::RowQuantization(DeviceQueue &queue, const DeviceRows &from, const DeviceRows &to,
                                 const DeviceRows &scales, bool computes_scales, std::span<const RowRun> runs,
                                 std::pmr::memory_resource *host)
    : one_(queue, &kNoScale, 1, "scale"),
      records_(quantize_records(from, to, scales, computes_scales, runs,
                                kernel_of(queue, KernelKind::kQuantize).tile.rows, host)),
      table_(queue, std::span<const QuantizeRecord>(records_), host),
      drained_(queue) {
    one_.upload();
    int32_t type = to.tensor.dtype;
    const int64_t dim = from.tensor.extent[3];
    const int64_t bytes = storage_bytes(to.tensor.dtype, dim),
                  byte_stride = storage_bytes(to.tensor.dtype, to.tensor.stride[2]);
    DeviceView rows = rows_view(from, kFloat), output(to.memory, {{bytes, 1}, {1, byte_stride}});
    queue.types = {};
    if (computes_scales) {
        DeviceView blocks = rows_view(scales, kFloat), channels(one_, {{dim, 0}});
        launch(queue, kernel_of(queue, KernelKind::kBlockScales), table_, &type, rows, blocks);
        launch(queue, kernel_of(queue, KernelKind::kQuantize), table_, &type, rows, channels, blocks, output);
        return;
    }
    DeviceView blocks(one_, {{1, 0}, {1, 0}}), channels(scales.memory, {{dim, scales.tensor.extent[3] > 1 ? 1 : 0}});
    launch(queue, kernel_of(queue, KernelKind::kQuantize), table_, &type, rows, channels, blocks, output);
}

}  // namespace hattn
