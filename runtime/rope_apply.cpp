// Turning the rows of a tensor, mostly queries.
#include <cstring>

#include "checked.h"
#include "context.h"
#include "parallel.h"
#include "rope.h"
#include "scratch.h"
#include "status.h"
#include "structs.h"
#include "tensor.h"

namespace hattn {

namespace {

constexpr int64_t kSerialElements = 32768;  // fewer are turned by the caller's thread

void check_tensors(const hattn_tensor &x, const hattn_tensor &out, bool in_place) {
    for (const auto &[tensor, name] : {std::pair(&x, "x"), std::pair(&out, "out")}) {
        check_tensor(*tensor, name, HATTN_FLOAT32);
        check_unit_stride(*tensor, name);
    }
    for (int d = 0; d < 4; ++d) {
        check_tensor_extent(out, "out", kQueryDimensions, d, x.extent[d], "that of x");
    }
    check_distinct_elements(out, "out");
    require(in_place || !overlaps(byte_range(out), byte_range(x)), HATTN_INVALID_ARGUMENT, "out: its memory, from ",
            out.data, ", overlaps that of x, from ", x.data, ", and they are not the same tensor");
}

bool same_elements(const hattn_tensor &a, const hattn_tensor &b) {
    bool same = a.data == b.data;
    for (int d = 0; d < 3; ++d) {
        same = same && (a.stride[d] == b.stride[d] || a.extent[d] <= 1);
    }
    return same;
}

void check_counts(const hattn_tensor &x, const RowCounts &rows) {
    for (int64_t b = 0; b < x.extent[0]; ++b) {
        require(rows.of(b) >= 0 && rows.of(b) <= x.extent[2], HATTN_INVALID_ARGUMENT, "lengths[", b, "]: is ",
                rows.of(b), ", but must be from 0 to the ", x.extent[2], " rows of x");
    }
}

void apply(const hattn_context &context, const hattn_rope &given, const hattn_tensor &x, const hattn_tensor &out,
           const int32_t *offsets, const int32_t *lengths) {
    const bool in_place = same_elements(x, out);
    check_tensors(x, out, in_place);
    const RowCounts rows{lengths, x.extent[2]};
    check_counts(x, rows);
    const ContextMemory memory(context, rope_memory_bytes(x.extent[3], context.executor.threads), kScratchAlignment);
    const Rope rope(given, x.extent[3], x.extent[0], rows, offsets, memory.data());
    if (is_empty(x)) {
        return;
    }
    const int64_t row_elements = x.extent[1] * x.extent[3], count = x.extent[0] * x.extent[2];
    const auto turn_row = [&](int64_t index, int32_t worker) {
        const int64_t b = index / x.extent[2], i = index % x.extent[2];
        if (i >= rows.of(b)) {
            return;
        }
        rope.move_to(b, i, worker);
        for (int64_t h = 0; h < x.extent[1]; ++h) {
            float *row = element<float>(out, b, h, i);
            if (!in_place) {
                std::memcpy(row, element<const float>(x, b, h, i), static_cast<size_t>(x.extent[3]) * sizeof(float));
            }
            rope.turn(row, worker);
        }
    };
    for_each_task(context.executor, count, count * row_elements < kSerialElements, turn_row);
}

}  // namespace

}  // namespace hattn

hattn_status hattn_rope_apply(hattn_context *context, const hattn_rope *rope, const hattn_tensor *x,
                              const hattn_tensor *out, const int32_t *offsets, const int32_t *lengths) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        const hattn_tensor from = read_struct(x, "x"), to = read_struct(out, "out");
        apply(*context, read_struct(rope, "rope"), from, to, offsets, lengths);
    });
}
