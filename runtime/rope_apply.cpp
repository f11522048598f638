#include "rope_apply.h"

#include <cstring>

#include "checked.h"
#include "context.h"
#include "convert.h"
#include "device/device.h"
#include "device/device_staging.h"
#include "device/device_turn.h"
#include "kernel_registry.h"
#include "parallel.h"
#include "rope.h"
#include "row_angles.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

constexpr int64_t kSerialElements = 32768;  // fewer are turned by the caller's thread

bool same_elements(const hattn_tensor &a, const hattn_tensor &b) {
    bool same = a.data == b.data;
    for (int d = 0; d < 3; ++d) {
        same = same && (a.stride[d] == b.stride[d] || a.extent[d] <= 1);
    }
    return same;
}

// A row in float32 for every worker, where tensors are of 16 bits.
class WideRows {
public:
    WideRows(const hattn_context &context, const hattn_tensor &x, const hattn_tensor &out)
        : x_(x),
          out_(out),
          floats_(round_up(x.extent[3], kScratchAlignment)),
          widen_(only_kernel(*context.target, KernelKind::kWiden)),
          narrow_(only_kernel(*context.target, KernelKind::kNarrow)),
          memory_(context, needed() ? bytes(context.executor.threads) : 0, kScratchAlignment) {}

    bool needed() const {
        return x_.dtype != HATTN_FLOAT32;
    }
    void turn(const RowTurner &rope, int64_t b, int64_t i, int32_t worker) const {
        const int64_t heads = x_.extent[1], dim = x_.extent[3];
        float *own = static_cast<float *>(memory_.data()) + worker * floats_;
        ScratchArena none(own, 0);
        const RowBlock dense = dense_rows(dim, 1, 1);
        // Head by head: kernels count elements in 32 bits, which distances between heads may exceed.
        for (int64_t h = 0; h < heads; ++h) {
            widen(widen_, none, x_.dtype, address(x_, b, h, i), {dim, 1, 1, 0, 0}, own, dense);
            rope.turn(own, worker);
            narrow(narrow_, none, out_.dtype, own, dense, address(out_, b, h, i), {dim, 1, 1, 0, 0});
        }
    }

private:
    size_t bytes(int32_t threads) const {
        const int64_t floats = checked_multiply(floats_, threads, "size of x");
        return static_cast<size_t>(checked_multiply(floats, sizeof(float), "size of x"));
    }

    const hattn_tensor &x_, &out_;
    const int64_t floats_;  // of a worker
    const KernelInfo &widen_, &narrow_;
    const ContextMemory memory_;
};

// Checks that `given` fits rows of x, also if there are none.
bool has_rows(const hattn_rope &given, const hattn_tensor &x) {
    if (is_empty(x)) {
        check_rope(given, x.extent[3]);
        return false;
    }
    return true;
}

void turn(const hattn_context &context, const hattn_queue *queue, const hattn_rope &rope, const hattn_tensor &x,
          const hattn_tensor &out, const int32_t *offsets, const int32_t *lengths) {
    const TurnedTensor turned{x, out, x.extent[0], {lengths, x.extent[2]}, offsets, offsets ? "offsets" : "x"};
    check_turned(turned);
    check_queue_of(x, queue, "x");
    if (x.device == HATTN_CPU) {
        turn_on_host(context, rope, turned);
        return;
    }
    DeviceQueue own(usable_device(x.device, x.device_id), x.device_id, queue);
    DeviceStaging staging(own);
    RowAngles angles;
    std::vector<RowRun> runs;
    turn_on_device(context, rope, turned, {own, staging, runs, angles});
    staging.wait();
}

}  // namespace

void check_turned(const TurnedTensor &turned) {
    const auto &[x, out, batch, rows, offsets, offsets_name] = turned;
    check_float_dtype(x.dtype, "x: dtype");
    for (const auto &[tensor, name] : {std::pair(&x, "x"), std::pair(&out, "out")}) {
        check_tensor(*tensor, name, x.dtype, tensor->device);
        check_unit_stride(*tensor, name);
    }
    check_same_place(out, "out", x, "x");
    check_tensor_extents(x, "x");
    for (int d = 0; d < 4; ++d) {
        check_tensor_extent(out, "out", kQueryDimensions, d, x.extent[d], "that of x");
    }
    check_distinct_elements(out, "out");
    require(same_elements(x, out) || !overlaps(byte_range(out), byte_range(x)), HATTN_INVALID_ARGUMENT,
            "out: its memory, from ", out.data, ", overlaps that of x, from ", x.data,
            ", and they are not the same tensor");
    for (int64_t b = 0; b < batch; ++b) {
        require(rows.of(b) >= 0 && rows.of(b) <= rows.rows, HATTN_INVALID_ARGUMENT, "lengths[", b, "]: is ", rows.of(b),
                ", but must be from 0 to the ", rows.rows, " rows of x");
    }
}

void turn_on_host(const hattn_context &context, const hattn_rope &given, const TurnedTensor &turned) {
    const auto &[x, out, batch, rows, offsets, offsets_name] = turned;
    if (!has_rows(given, x)) {
        return;
    }
    const int64_t row_elements = x.extent[1] * x.extent[3], count = x.extent[0] * x.extent[2];
    const int32_t threads = context.executor.threads;
    const bool in_place = same_elements(x, out);
    const ContextMemory memory(context, rope_memory_bytes(x.extent[3], threads), kScratchAlignment);
    const RowTurner rope(given, x.extent[3], batch, rows, offsets, offsets_name, memory.data());
    const WideRows wide(context, x, out);
    const auto turn_row = [&](int64_t index, int32_t worker) {
        const int64_t b = index / x.extent[2], i = index % x.extent[2];
        const int64_t sequence = rows.sequence_of(b, i, batch), row = i - rows.first(sequence);
        if (row >= rows.of(sequence)) {
            return;
        }
        rope.move_to(sequence, row, worker);
        if (wide.needed()) {
            wide.turn(rope, b, i, worker);
            return;
        }
        for (int64_t h = 0; h < x.extent[1]; ++h) {
            float *to = element<float>(out, b, h, i);
            if (!in_place) {
                std::memcpy(to, element<const float>(x, b, h, i), static_cast<size_t>(x.extent[3]) * sizeof(float));
            }
            rope.turn(to, worker);
        }
    };
    for_each_task(context.executor, count, count * row_elements < kSerialElements, turn_row);
}

void turn_on_device(const hattn_context &context, const hattn_rope &given, const TurnedTensor &turned,
                    const DeviceWork &work) {
    const auto &[x, out, batch, rows, offsets, offsets_name] = turned;
    if (!has_rows(given, x)) {
        return;
    }
    const ContextMemory memory(context, rope_memory_bytes(x.extent[3], 1), kScratchAlignment);
    const RowTurner rope(given, x.extent[3], batch, rows, offsets, offsets_name, memory.data());
    compute_angles(rope, batch, rows, work.angles);
    list_rows(batch, rows, work.runs);
    launch_turns(work, x, out, same_elements(x, out));
}

}  // namespace hattn

hattn_status hattn_rope_apply(hattn_context *context, const hattn_rope *rope, const hattn_tensor *x,
                              const hattn_tensor *out, const int32_t *offsets, const int32_t *lengths) {
    return hattn_rope_apply_in_queue(context, nullptr, rope, x, out, offsets, lengths);
}

hattn_status hattn_rope_apply_in_queue(hattn_context *context, const hattn_queue *queue, const hattn_rope *rope,
                                       const hattn_tensor *x, const hattn_tensor *out, const int32_t *offsets,
                                       const int32_t *lengths) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        const hattn_tensor from = read_struct(x, "x"), to = read_struct(out, "out");
        turn(*context, queue, read_struct(rope, "rope"), from, to, offsets, lengths);
    });
}
