#include "device_merge.h"

#include <algorithm>
#include <list>
#include <memory_resource>
#include <span>
#include <vector>

#include "device_append.h"
#include "device_choice.h"
#include "runtime/checked.h"

namespace hattn {

namespace {

constexpr int64_t kGatheredBytes = int64_t{64} << 20;  // states of so many bytes are side by side at a time
constexpr float kNoSink = 0.0f;                        // stands for the sinks that there are none of
constexpr int32_t kNone = -1;
constexpr const char *kStates = "size of states";

// Of `rows` rows, [count, heads, rows, width] float32.
hattn_tensor gathered(int64_t count, int64_t heads, int64_t rows, int64_t width) {
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    const int64_t extent[4] = {count, heads, rows, width};
    int64_t stride = 1;
    for (int d = 3; d >= 0; --d) {
        tensor.extent[d] = extent[d];
        tensor.stride[d] = stride;
        stride = checked_multiply(stride, extent[d], kStates);
    }
    return tensor;
}

std::pmr::vector<MergeRecord> merge_records(std::span<const RowRun> runs, const DeviceRows &states,
                                            const DeviceRows &state_lses, const DeviceRows &out, const DeviceRows &lse,
                                            std::pmr::memory_resource *host) {
    const auto at = [](const DeviceRows &rows, int64_t b, int64_t h, int64_t i) {
        return static_cast<int32_t>(rows.memory.offset(rows.tensor, b, h, i));
    };
    const hattn_tensor &gathered_rows = states.tensor;
    std::pmr::vector<MergeRecord> records(host);
    records.reserve(gathered_rows.extent[1] * gathered_rows.extent[2]);
    for (const RowRun &run : runs) {
        for (int64_t h = 0; h < gathered_rows.extent[1]; ++h) {
            for (int64_t i = 0; i < run.rows; ++i) {
                const int64_t from = run.from_row + i, row = run.to_row + i;
                records.push_back({at(states, 0, h, row), at(state_lses, 0, h, row), kNone, at(out, run.from, h, from),
                                   at(lse, run.from, h, from), static_cast<int32_t>(gathered_rows.extent[0])});
            }
        }
    }
    return records;
}

// Launched when made, from gathered states.
class GatheredMerge {
public:
    GatheredMerge(DeviceQueue &queue, const DeviceKernelInfo &kernel, std::span<const RowRun> runs,
                  const DeviceRows &states, const DeviceRows &state_lses, const hattn_tensor &out,
                  const hattn_tensor &lse, std::pmr::memory_resource *host)
        : out_(queue, out, "out"),
          lse_(queue, lse, "lse"),
          no_sink_(queue, &kNoSink, 1, "sinks"),
          records_(merge_records(runs, states, state_lses, out_, lse_, host)),
          table_(queue, std::span<const MergeRecord>(records_),
                 UnitOrder::of(records_.size(), runs.front().rows, out.extent[1]), host),
          drained_(queue) {
        const hattn_tensor &gathered_rows = states.tensor;
        launch_merges(queue, kernel, table_,
                      {states.memory, state_lses.memory, no_sink_, out_.memory, lse_.memory, out.extent[3],
                       gathered_rows.extent[1] * gathered_rows.extent[2], out.dtype});
    }

    // What it needs for so many rows.
    static void add_bytes(int64_t rows, StagingBytes &bytes) {
        bytes.add_on_device(sizeof(kNoSink));
        bytes.add_on_host(checked_multiply(rows, sizeof(MergeRecord), kStates));
        bytes.add_table(checked_multiply(PackedUnits::most_records(rows), sizeof(MergeRecord), kStates));
    }

private:
    const DeviceRows out_, lse_;
    const DeviceMemory no_sink_;
    const std::pmr::vector<MergeRecord> records_;
    UnitTable table_;
    const DrainedOnFailure drained_;
};

// One call. Its states are gathered some rows at a time, as the kernel wants them: from one place at one stride.
class DeviceMerge {
public:
    DeviceMerge(const hattn_queue *queue, int32_t count, const hattn_tensor *outs, const hattn_tensor *lses,
                const hattn_tensor &out, const hattn_tensor &lse)
        : count_(count),
          outs_(outs),
          lses_(lses),
          out_(out),
          lse_(lse),
          queue_(usable_device(out.device, out.device_id), out.device_id, queue),
          kernel_(device_kernel(device_limits(queue_.target, out.device_id), KernelKind::kMerge, 0, out.extent[3])) {}

    void run() {
        const int64_t heads = out_.extent[1], state = checked_multiply(count_, out_.extent[3] + 1, kStates);
        const int64_t row_bytes = checked_multiply(checked_multiply(heads, state, kStates), sizeof(float), kStates);
        const int64_t most = std::max<int64_t>(kGatheredBytes / row_bytes, 1);
        std::vector<RowRun> runs;
        int64_t rows = 0;
        for (int64_t b = 0; b < out_.extent[0]; ++b) {
            for (int64_t i = 0; i < out_.extent[2];) {
                const int64_t taken = std::min(most - rows, out_.extent[2] - i);
                runs.push_back({b, i, 0, rows, taken, 0});
                i += taken;
                rows += taken;
                if (rows == most) {
                    merge(runs, rows);
                    runs.clear();
                    rows = 0;
                }
            }
        }
        if (rows > 0) {
            merge(runs, rows);
        }
        staging_.wait();
    }

private:
    // `runs` lead from places of the tensors to those of state 0, `rows` in all.
    void merge(std::span<RowRun> runs, int64_t rows) {
        const int64_t heads = out_.extent[1];
        const hattn_tensor states = gathered(count_, heads, rows, out_.extent[3]);
        const hattn_tensor state_lses = gathered(count_, heads, rows, 1);
        discard_device_error();
        StagedCall call(staging_, bytes_of(runs, states, state_lses));
        const DeviceRows to(queue_, states, "states"), to_lses(queue_, state_lses, "states");
        std::list<DeviceRows> given;
        std::list<RowConversion> conversions;
        for (int32_t n = 0; n < count_; ++n) {
            for (RowRun &run : runs) {
                run.to = n;
            }
            const DeviceRows &from = given.emplace_back(queue_, outs_[n], "outs");
            conversions.emplace_back(queue_, from, to, runs, nullptr, call.host());
            const DeviceRows &from_lses = given.emplace_back(queue_, lses_[n], "lses");
            conversions.emplace_back(queue_, from_lses, to_lses, runs, nullptr, call.host());
        }
        const GatheredMerge merged(queue_, kernel_, runs, to, to_lses, out_, lse_, call.host());
        call.finish(false);
    }

    StagingBytes bytes_of(std::span<const RowRun> runs, const hattn_tensor &states,
                          const hattn_tensor &state_lses) const {
        StagingBytes bytes;
        for (int32_t n = 0; n < 2 * count_; ++n) {
            RowConversion::add_bytes(queue_, out_.extent[1], runs, nullptr, bytes);
        }
        for (const hattn_tensor *tensor : {&states, &state_lses}) {
            const int64_t floats = checked_multiply(count_, tensor->stride[0], kStates);
            bytes.add_on_device(checked_multiply(floats, sizeof(float), kStates));
        }
        GatheredMerge::add_bytes(states.extent[1] * states.extent[2], bytes);
        return bytes;
    }

    const int32_t count_;
    const hattn_tensor *const outs_, *const lses_;
    const hattn_tensor &out_, &lse_;
    DeviceQueue queue_;
    const DeviceKernelInfo &kernel_;
    DeviceStaging staging_{queue_};
};

}  // namespace

void launch_merges(DeviceQueue &queue, const DeviceKernelInfo &kernel, UnitTable &table, const MergedStates &merged) {
    const int64_t dim = merged.dim, state_rows = merged.state_rows;
    DeviceView partial_output(merged.states, {{dim, 1}, {1, dim}, {1, state_rows * dim}});
    DeviceView partial_lse(merged.state_lse, {{1, 1}, {1, state_rows}});
    DeviceView sinks(merged.sinks, {{1, 1}});
    int32_t heads = 1, output_type = merged.out_type;
    DeviceView output(merged.out, kFloat, {{dim, 1}, {1, 0}, {1, 0}});
    DeviceView output_halves(merged.out, kHalf, {{1, 1}});
    DeviceView lse(merged.lse, {{dim, 0}, {1, 0}, {1, 0}});
    queue.types = {.output = merged.out_type};
    launch(queue, kernel, table, partial_output, partial_lse, sinks, &heads, &output_type, output_halves, output, lse);
}

void merge_on_device(const hattn_queue *queue, int32_t count, const hattn_tensor *outs, const hattn_tensor *lses,
                     const hattn_tensor &out, const hattn_tensor &lse) {
    DeviceMerge(queue, count, outs, lses, out, lse).run();
}

}  // namespace hattn
