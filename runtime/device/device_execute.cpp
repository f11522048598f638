#include "device_execute.h"

#include <algorithm>
#include <limits>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "device_launch.h"
#include "device_merge.h"
#include "device_units.h"
#include "runtime/kernel_registry.h"
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

// Per head: given values or zeros.
std::pmr::vector<float> per_head(const Problem &problem, const float *given, std::pmr::memory_resource *memory) {
    std::pmr::vector<float> values(problem.query_heads, 0.0f, memory);
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
          queue_(*plan.target, problem.device_id, args, plan.workspace.device_bytes),
          waits_(waits || !args.queue || args.q.device == HATTN_CPU),
          host_(args.workspace, plan.workspace.host_bytes - plan.workspace.upload_bytes),
          lse_(lse_tensor(args)),
          bias_(or_else(args.bias, &kNoBias, HATTN_FLOAT32)),
          mask_(or_else(args.mask, &kNoMask, HATTN_BOOL)),
          slopes_(per_head(problem, args.alibi_slopes, &host_)),
          sinks_(per_head(problem, args.sinks, &host_)),
          alibi_slopes_(queue_, slopes_, "alibi_slopes"),
          sink_logits_(queue_, sinks_, "sinks"),
          tensors_{{queue_, args.q, "q"},
                   {queue_, problem, args, args.k, args.k_scale, "k", &host_},
                   {queue_, problem, args, args.v, args.v_scale, "v", &host_},
                   {queue_, args.out, "out"},
                   {queue_, lse_, "lse"},
                   {queue_, bias_, "bias"},
                   {queue_, mask_, "mask"}},
          units_(make_device_units(problem, plan, args, lse_, tensors_, wanted_scores(), &host_)),
          row_layout_(row_layout()) {
        if (args.workspace) {
            const DeviceWorkspace &sizes = plan.workspace;
            char *const end = static_cast<char *>(args.workspace) + sizes.host_bytes;
            queue_.uploads.use(end - sizes.upload_bytes, sizes.upload_bytes);
        }
    }

    // Nothing is left in the queue that reads memory of the host after a failure.
    void run() {
        try {
            enqueue();
        } catch (...) {
            queue_.drain();
            throw;
        }
        if (waits_ || queue_.took_memory) {
            queue_.driver.wait(queue_);
        }
    }

private:
    const DeviceMemory *wanted_scores() {
        return plan_.scores ? &scores_.emplace(queue_, args_.scores, "scores") : nullptr;
    }

    // What a kernel reads, in the order in which parts of the workspace were taken: neighbours go together.
    void upload() {
        static const uint32_t alibi = hook_bit("alibi"), bias = hook_bit("bias"), mask = hook_bit("mask");
        uint32_t hooks = 0;  // of all kernels
        bool scales = false;
        for (const DeviceKernelInfo *kernel : {plan_.attention, plan_.values, plan_.scores}) {
            hooks |= kernel ? kernel->hooks : 0;
            scales = scales || (kernel && takes_scales(*kernel));
        }
        if (hooks & alibi) {
            alibi_slopes_.upload();
        }
        if (args_.sinks) {
            sink_logits_.upload();
        }
        tensors_.query.upload();
        tensors_.key.upload(scales);
        tensors_.value.upload(scales);
        if (hooks & bias) {
            tensors_.bias.upload();
        }
        if (hooks & mask) {
            tensors_.mask.upload();
        }
        if (looks_granules_up()) {
            tensors_.key.upload_tables(&host_);
            tensors_.value.upload_tables(&host_);
        }
    }

    // Kernels know where granules are that lie side by side, if they have loops of their own for the types.
    bool looks_granules_up() const {
        const DeviceKernelInfo &kernel = *plan_.attention;
        const bool flash = plan_.algorithm == HATTN_ALGORITHM_FLASH || plan_.algorithm == HATTN_ALGORITHM_SPLIT_KV;
        const bool alike = args_.k.dtype == args_.v.dtype && (kernel.any_float || args_.k.dtype == HATTN_FLOAT32);
        return row_layout_ != kRowsSideBySide || !flash || plan_.scores ||
               (kernel.matrix_type == HATTN_FLOAT32 && !alike);
    }

    void enqueue() {
        upload();
        if (plan_.split_keys > 0) {
            run_split();
        } else {
            UnitTable tiles(queue_, std::span(units_.attention), units_.attention_order, &host_);
            launch_attention(tiles, {tensors_.output, args_.out.dtype, args_.out.stride[2]}, tensors_.lse,
                             lse_.stride[2]);
        }
        if (scores_) {
            launch_scores();
            scores_->download();
        }
        tensors_.output.download();
        if (args_.lse.data) {
            tensors_.lse.download();
        }
    }

    void run_split() {
        const int64_t rows = std::max<int64_t>(units_.state_rows, 1);
        const float *no_host = nullptr;
        std::optional<UnitTable> tiles;
        if (!plan_.values && !units_.attention.empty()) {
            tiles.emplace(queue_, std::span(units_.attention), units_.attention_order, &host_);
        }
        UnitTable merges(queue_, std::span(units_.merges), units_.merge_order, &host_);
        const DeviceMemory states(queue_, no_host, rows * problem_.value_dim, "partial states");
        const DeviceMemory state_lse(queue_, no_host, rows, "partial states");
        if (plan_.values) {
            run_unfused(states, state_lse);
        } else if (tiles) {
            launch_attention(*tiles, {states, HATTN_FLOAT32, problem_.value_dim}, state_lse, 1);
        }
        // States of a row lie a tile apart.
        launch_merges(queue_, *plan_.merge, merges,
                      {states, state_lse, sink_logits_, tensors_.output, tensors_.lse, problem_.value_dim,
                       plan_.attention->tile.rows, args_.out.dtype});
    }

    // Scores and values of as many units at a time as there is memory for the weights between them.
    void run_unfused(const DeviceMemory &states, const DeviceMemory &state_lse) {
        const DeviceTile &tile = plan_.attention->tile;
        const int64_t most = plan_.workspace.weight_units, dim = problem_.value_dim;
        const float *no_host = nullptr;
        const DeviceMemory weights(queue_, no_host, most * tile.rows * tile.keys, "weights");
        const DeviceMemory maxima(queue_, no_host, most * tile.rows, "weights");
        const DeviceMemory sums(queue_, no_host, most * tile.rows, "weights");
        DeviceView weight_rows(weights, {{tile.keys, 1}, {1, tile.keys}});
        DeviceView maximum(maxima, {{1, 1}}), repeated_maximum(maxima, {{tile.keys, 0}, {1, 1}});
        DeviceView sum(sums, {{1, 1}}), repeated_sum(sums, {{tile.keys, 0}, {1, 1}});
        DeviceView output(states, {{dim, 1}, {1, dim}}), lse(state_lse, {{dim, 0}, {1, 1}});
        const int64_t count = static_cast<int64_t>(units_.attention.size());
        for (int64_t first = 0; first < count; first += most) {
            std::pmr::vector<UnfusedRecord> records(&host_);
            records.reserve(most);
            for (int64_t i = 0; i < std::min(most, count - first); ++i) {
                const auto row = static_cast<int32_t>(i * tile.rows);
                records.push_back({units_.attention[first + i], row * tile.keys, row});
            }
            UnitTable table(queue_, std::span<const UnfusedRecord>(records), &host_);
            launch_tiles(*plan_.attention, table, HATTN_FLOAT32, weight_rows, repeated_maximum, repeated_sum);
            launch_tiles(*plan_.values, table, HATTN_FLOAT32, weight_rows, maximum, sum, output, lse);
        }
    }

    void launch_scores() {
        if (units_.scores.empty()) {
            return;
        }
        UnitTable table(queue_, std::span(units_.scores), &host_);
        float masked = problem_.scores == HATTN_SCORES_MASKED ? kNegativeInfinity : 0.0f;
        DeviceView output(*scores_, {{1, 1}, {1, args_.scores.stride[2]}});
        launch_tiles(*plan_.scores, table, HATTN_FLOAT32, &masked, output);
    }

    // The rows of a unit, of one head or of a partial state, lie at one stride.
    struct RowOutput {
        const DeviceMemory &memory;
        hattn_dtype type;
        int64_t stride;
    };

    void launch_attention(UnitTable &table, const RowOutput &out, const DeviceMemory &lse, int64_t lse_stride) {
        DeviceView output(out.memory, kFloat, {{problem_.value_dim, 1}, {1, out.stride}});
        DeviceView output_lse(lse, {{problem_.value_dim, 0}, {1, lse_stride}});
        if (plan_.algorithm == HATTN_ALGORITHM_NAIVE) {
            launch_tiles(*plan_.attention, table, HATTN_FLOAT32, output, output_lse);
            return;
        }
        DeviceView output_halves(out.memory, kHalf, {{1, 1}});
        int32_t output_type = out.type;
        launch_tiles(*plan_.attention, table, out.type, &output_type, output_halves, output, output_lse);
    }

    RowLayout row_layout() const {
        // Kernels of any type that is not quantised have one size of blocks for all.
        constexpr int64_t kBytes = 16, kElements = 8;
        const bool any_float = plan_.attention && plan_.attention->any_float;
        const auto of_block = [&](hattn_dtype type) { return any_float ? kElements : 8 * kBytes / dtype_bits(type); };
        const auto whole = [&](hattn_dtype type, auto... counts) {
            return ((counts & (of_block(type) - 1)) | ...) == 0;  // blocks are powers of two
        };
        const auto is_aligned = [&](const DeviceSide &side, hattn_dtype type) {
            return side.is_aligned(kBytes, of_block(type));
        };
        const auto stored = [&](int64_t at) {  // partial states are aligned
            return plan_.split_keys > 0 || whole(args_.out.dtype, at);
        };
        const auto &q = args_.q;
        const hattn_dtype k = args_.k.dtype, v = args_.v.dtype;
        const bool aligned =
            tensors_.query.handle() % kBytes == 0 && is_aligned(tensors_.key, k) && is_aligned(tensors_.value, v) &&
            tensors_.output.handle() % kBytes == 0 && whole(q.dtype, problem_.key_dim, q.stride[1], q.stride[2]) &&
            stored(args_.out.stride[2]) && whole(k, problem_.key_dim) && whole(v, problem_.value_dim) &&
            std::all_of(units_.attention.begin(), units_.attention.end(), [&](const UnitRecord &unit) {
                return whole(q.dtype, unit.query) && whole(k, unit.key) && whole(v, unit.value) && stored(unit.output);
            });
        return !aligned ? kRowsAnywhere : problem_.scattered() ? kRowsAligned : kRowsSideBySide;
    }

    // Arguments in the order of generators/kernel_inputs.cpp, then those of the kernel alone.
    template<typename... Arguments>
    void launch_tiles(const DeviceKernelInfo &kernel, UnitTable &units, hattn_dtype output_type, Arguments &&...own) {
        DeviceSideViews key(tensors_.key), value(tensors_.value);
        const auto operand = [](const DeviceMemory &memory, const hattn_tensor &tensor) {
            return DeviceView(memory, {{tensor.extent[3], used_stride(tensor, 3)},
                                       {tensor.extent[2], used_stride(tensor, 2)},
                                       {tensor.extent[1], used_stride(tensor, 1)}});
        };
        DeviceView query = queries(kFloat), query_halves = queries(kHalf);
        DeviceView bias = operand(tensors_.bias, bias_), mask = operand(tensors_.mask, mask_);
        DeviceView slopes(alibi_slopes_, {{problem_.query_heads, 1}});
        DeviceView sinks(sink_logits_, {{problem_.query_heads, 1}}), known_lse(tensors_.lse, {{1, lse_.stride[2]}});
        float scale = problem_.scale, softcap = problem_.softcap;
        int32_t of_unit = 0, query_type = args_.q.dtype, layout = row_layout_;
        queue_.types = {args_.q.dtype, args_.k.dtype, args_.v.dtype, output_type};
        launch(queue_, kernel, units, query, key.floats, value.floats, key.granules, value.granules, bias, mask, slopes,
               sinks, known_lse, &of_unit, &of_unit, &scale, &softcap, &of_unit, &of_unit, &of_unit, &key.type,
               &key.lines, key.halves, key.bytes, key.channel_scales, key.block_scales, key.scale_granules, &value.type,
               &value.lines, value.halves, value.bytes, value.channel_scales, value.block_scales, value.scale_granules,
               &query_type, query_halves, &layout, own...);
    }

    DeviceView queries(halide_type_t type) const {
        return {tensors_.query, type, {{problem_.key_dim, 1}, {1, args_.q.stride[2]}, {1, args_.q.stride[1]}}};
    }

    const Problem &problem_;
    const DevicePlan &plan_;
    const hattn_attention_args &args_;
    DeviceQueue queue_;
    const bool waits_;
    std::pmr::monotonic_buffer_resource host_;  // the workspace
    const hattn_tensor lse_, bias_, mask_;
    const std::pmr::vector<float> slopes_, sinks_;
    DeviceMemory alibi_slopes_, sink_logits_;
    DeviceTensors tensors_;
    std::optional<DeviceMemory> scores_;
    const DeviceUnits units_;
    const RowLayout row_layout_;
};

}  // namespace

void execute_on_device(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args, bool waits) {
    discard_device_error();
    DeviceExecution(problem, plan, args, waits).run();
}

}  // namespace hattn
