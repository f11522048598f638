#include "device_execute.h"

#include <algorithm>
#include <limits>
#include <memory_resource>
#include <span>
#include <vector>

#include "device_units.h"
#include "runtime/key_storage.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// lse as wanted, or memory of the device alone that has its shape.
hattn_tensor lse_tensor(const hattn_attention_args &args) {
    if (args.lse.data) {
        return args.lse;
    }
    hattn_tensor lse = HATTN_TENSOR_INIT;
    int64_t stride = 1;
    for (int d = 3; d >= 0; --d) {
        lse.extent[d] = d == 3 ? 1 : args.q.extent[d];
        lse.stride[d] = stride;
        stride *= lse.extent[d];
    }
    return lse;
}

// Operands of hooks that a kernel has and the problem has not: they change nothing.
constexpr float kNoBias = 0.0f;
constexpr uint8_t kNoMask = 1;

hattn_tensor or_else(const hattn_tensor &given, const void *neutral, hattn_dtype dtype) {
    if (given.data) {
        return given;
    }
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    tensor.data = const_cast<void *>(neutral);
    tensor.dtype = dtype;
    std::fill(tensor.extent, tensor.extent + 4, 1);
    return tensor;
}

// Per head: given values or zeros, or for sinks none, with room for a tile of sinks that are none behind them.
std::pmr::vector<float> per_head(const Problem &problem, const float *given, float neutral, int64_t more,
                                 std::pmr::memory_resource *memory) {
    std::pmr::vector<float> values(problem.query_heads + more, neutral, memory);
    if (given) {
        std::copy(given, given + problem.query_heads, values.begin());
    }
    return values;
}

// One execute: memory on the device, and its launches.
class DeviceExecution {
public:
    DeviceExecution(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args, bool waits)
        : problem_(problem),
          plan_(plan),
          args_(args),
          queue_(*plan.target, problem.device_id, args),
          waits_(waits || !args.queue || args.q.device == HATTN_CPU),
          host_(args.workspace, plan.workspace.host_bytes),
          lse_(lse_tensor(args)),
          bias_(or_else(args.bias, &kNoBias, HATTN_FLOAT32)),
          mask_(or_else(args.mask, &kNoMask, HATTN_BOOL)),
          tables_(make_granule_tables(problem, args, &host_)),
          slopes_(per_head(problem, args.alibi_slopes, 0.0f, 0, &host_)),
          sinks_(per_head(problem, args.sinks, kNegativeInfinity, plan.attention->tile.rows, &host_)),
          key_granules_(queue_, tables_.key, "k"),
          value_granules_(queue_, tables_.value, "v"),
          alibi_slopes_(queue_, slopes_, "alibi_slopes"),
          sink_logits_(queue_, sinks_, "sinks"),
          tensors_{{queue_, args.q, "q"}, {queue_, args.k, "k"},   {queue_, args.v, "v"},  {queue_, args.out, "out"},
                   {queue_, lse_, "lse"}, {queue_, bias_, "bias"}, {queue_, mask_, "mask"}},
          units_(make_device_units(problem, plan, args, lse_, tensors_, tables_, &host_)) {}

    // Nothing is left in the queue that reads memory of the host after a failure.
    void run() {
        try {
            enqueue();
        } catch (...) {
            discard_device_error();
            try {
                queue_.driver.wait(queue_);
            } catch (const StatusError &) {
                // The first error counts.
            }
            throw;
        }
        if (waits_ || queue_.took_memory) {
            queue_.driver.wait(queue_);
        }
    }

private:
    void enqueue() {
        for (DeviceMemory *input : {&tensors_.query, &tensors_.key, &tensors_.value, &tensors_.bias, &tensors_.mask,
                                    &key_granules_, &value_granules_, &alibi_slopes_, &sink_logits_}) {
            input->upload();
        }
        if (plan_.algorithm == HATTN_ALGORITHM_SPLIT_KV) {
            run_split();
        } else {
            launch_attention(tensors_.output, args_.out.stride[2], tensors_.lse, lse_.stride[2]);
        }
        tensors_.output.download();
        if (args_.lse.data) {
            tensors_.lse.download();
        }
    }

    void run_split() {
        const int64_t rows = std::max<int64_t>(units_.state_rows, 1);
        const float *no_host = nullptr;
        const DeviceMemory states(queue_, no_host, rows * problem_.value_dim, "partial states");
        const DeviceMemory state_lse(queue_, no_host, rows, "partial states");
        if (!units_.attention.empty()) {
            launch_attention(states, problem_.value_dim, state_lse, 1);
        }
        launch_merges(states, state_lse);
    }

    // A launch takes its table of units first.
    template<typename Record, typename... Arguments>
    void launch(const DeviceKernelInfo &kernel, std::span<const Record> records, Arguments &&...arguments) {
        constexpr int64_t kColumns = sizeof(Record) / sizeof(int32_t);
        const auto count = static_cast<int32_t>(records.size());
        DeviceMemory memory(queue_, reinterpret_cast<const int32_t *>(records.data()), count * kColumns, "units");
        memory.upload();
        DeviceView units(memory, {{kColumns, 1}, {count, kColumns}});
        void *context = queue_.user_context();
        int32_t unit_count = count;
        void *all[] = {&context, units, &unit_count, arguments...};
        queue_.kernel = &kernel;
        check_device(kernel.function(all), queue_.target, kernel.name);
    }

    // Arguments in the order of generators/kernel_inputs.cpp. The rows of a unit lie at one stride in `out` and `lse`:
    // they are of one head, or of a partial state.
    void launch_attention(const DeviceMemory &out, int64_t row_stride, const DeviceMemory &lse, int64_t lse_stride) {
        const int64_t granules = static_cast<int64_t>(tables_.key.size());
        const auto rows_of = [&](const DeviceMemory &memory, const hattn_tensor &side) {
            return DeviceView(
                memory,
                {{side.extent[3], 1}, {kGranuleKeys, side.stride[2]}, {granules, granule_unit(problem_, side)}});
        };
        const auto operand = [](const DeviceMemory &memory, const hattn_tensor &tensor) {
            return DeviceView(memory, {{tensor.extent[3], used_stride(tensor, 3)},
                                       {tensor.extent[2], used_stride(tensor, 2)},
                                       {tensor.extent[1], used_stride(tensor, 1)}});
        };
        DeviceView query(tensors_.query, {{problem_.key_dim, 1}, {1, args_.q.stride[2]}, {1, args_.q.stride[1]}});
        DeviceView key = rows_of(tensors_.key, args_.k), value = rows_of(tensors_.value, args_.v);
        DeviceView key_granules(key_granules_, {{granules, 1}}), value_granules(value_granules_, {{granules, 1}});
        DeviceView bias = operand(tensors_.bias, bias_), mask = operand(tensors_.mask, mask_);
        DeviceView slopes(alibi_slopes_, {{problem_.query_heads, 1}});
        DeviceView sinks(sink_logits_, {{problem_.query_heads, 1}}), unused_lse(sink_logits_, {{1, 1}});
        float scale = problem_.scale, softcap = problem_.softcap;
        int32_t of_unit = 0;
        DeviceView output(out, {{problem_.value_dim, 1}, {1, row_stride}});
        DeviceView output_lse(lse, {{problem_.value_dim, 0}, {1, lse_stride}});
        launch(*plan_.attention, std::span(units_.attention), query, key, value, key_granules, value_granules, bias,
               mask, slopes, sinks, unused_lse, &of_unit, &of_unit, &scale, &softcap, &of_unit, &of_unit, &of_unit,
               output, output_lse);
    }

    // A unit is one row. Its states lie a tile apart.
    void launch_merges(const DeviceMemory &states, const DeviceMemory &state_lse) {
        const int64_t tile_rows = plan_.attention->tile.rows, dim = problem_.value_dim;
        DeviceView partial_output(states, {{dim, 1}, {1, dim}, {1, tile_rows * dim}});
        DeviceView partial_lse(state_lse, {{1, 1}, {1, tile_rows}});
        DeviceView sinks(sink_logits_, {{1, 1}});
        int32_t heads = 1;
        DeviceView output(tensors_.output, {{dim, 1}, {1, 0}, {1, 0}});
        DeviceView lse(tensors_.lse, {{dim, 0}, {1, 0}, {1, 0}});
        launch(*plan_.merge, std::span(units_.merges), partial_output, partial_lse, sinks, &heads, output, lse);
    }

    const Problem &problem_;
    const DevicePlan &plan_;
    const hattn_attention_args &args_;
    DeviceQueue queue_;
    const bool waits_;
    std::pmr::monotonic_buffer_resource host_;  // the workspace
    const hattn_tensor lse_, bias_, mask_;
    const GranuleTables tables_;
    const std::pmr::vector<float> slopes_, sinks_;
    DeviceMemory key_granules_, value_granules_, alibi_slopes_, sink_logits_;
    DeviceTensors tensors_;
    const DeviceUnits units_;
};

}  // namespace

void execute_on_device(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args, bool waits) {
    discard_device_error();
    DeviceExecution(problem, plan, args, waits).run();
}

}  // namespace hattn
