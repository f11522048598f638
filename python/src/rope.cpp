#include "rope.h"

#include <cstring>
#include <string>
#include <vector>

#include "given_queue.h"
#include "released_gil.h"
#include "session.h"

namespace hattn_python {
namespace {

constexpr const char *kBatchOfX = "the batch of x";

const float *add_table(const nb::object &object, const char *name, Array &array, int64_t &positions) {
    if (object.is_none())
        return nullptr;
    array = Array::readable(object, name);
    const hattn_tensor table = array.tensor(Layout::kBhsd, kFloat32);
    positions = table.extent[2];
    return static_cast<const float *>(table.data);
}

nb::object empty_like(const hattn_tensor &tensor, Layout layout) {
    const int64_t *extent = tensor.extent;
    const bool swapped = layout == Layout::kBshd;
    return empty_array({extent[0], extent[swapped ? 2 : 1], extent[swapped ? 1 : 2], extent[3]}, tensor.dtype);
}

// The dtype of another tensor, which has one of kFloats.
Dtypes dtype_of(const hattn_tensor &tensor) {
    const char *name = tensor.dtype == HATTN_FLOAT32   ? "float32"
                       : tensor.dtype == HATTN_FLOAT16 ? "float16"
                                                       : "bfloat16";
    return {1U << tensor.dtype, name};
}

// Of the positions that offsets lead to, the library's messages name none of its arguments.
void check_starts(const std::vector<int32_t> &starts, const std::vector<int32_t> &lengths, int64_t rows) {
    for (size_t b = 0; b < starts.size(); ++b) {
        if (starts[b] < 0 && (lengths.empty() ? rows : lengths[b]) > 0)
            raise(PyExc_ValueError,
                  "offsets[" + std::to_string(b) + "]: is " + std::to_string(starts[b]) + ", but must be at least 0");
    }
}

}  // namespace

RopeCall::RopeCall(const RopeOptions *options, nb::handle positions, int64_t batch, int64_t rows)
    : given_(options != nullptr) {
    if (!given_)
        return;
    hattn_rope_init(&rope_);
    rope_.style = options->interleaved ? HATTN_ROPE_INTERLEAVED : HATTN_ROPE_HALF_SPLIT;
    rope_.rotary_dim = options->rotary_dim;
    rope_.base = options->base;
    rope_.scaling_factor = options->scaling_factor;
    rope_.cos_table = add_table(options->cos, "cos", cos_, rope_.table_positions);
    rope_.sin_table = add_table(options->sin, "sin", sin_, rope_.table_positions);
    if (!positions.is_none()) {
        add_positions(Array::readable(positions, "positions"), batch, rows);
    }
}

void RopeCall::check_tables(int64_t head_dim) const {
    if (given_ && rope_.cos_table && rope_.rotary_dim > head_dim)
        raise(PyExc_ValueError, "rope: cos has " + std::to_string(rope_.rotary_dim / 2) + " pairs, but heads have " +
                                    std::to_string(head_dim) + " elements");
}

void RopeCall::add_positions(const Array &positions, int64_t batch, int64_t rows) {
    const hattn_tensor given = positions.broadcast_tensor(kInt32);
    const int64_t sequences = given.extent[2];
    if (given.extent[3] != rows || (sequences != 1 && sequences != batch))
        raise(PyExc_ValueError, "positions: is for " + std::to_string(sequences) + " sequences of " +
                                    std::to_string(given.extent[3]) + " rows, but must be for 1 or " +
                                    std::to_string(batch) + " of " + std::to_string(rows));
    const auto *first = static_cast<const int32_t *>(given.data);
    positions_.assign(first, first + sequences * rows);
    rope_.positions = positions_.data();
    rope_.positions_stride = sequences == 1 ? 0 : rows;
}

TurnedArrays::TurnedArrays(nb::handle x, nb::handle out, Layout layout, bool clears)
    : from_(Array::readable(x, "x")), from_tensor_(from_.tensor(layout, kFloats)) {
    made_ = out.is_none() ? empty_like(from_tensor_, layout) : nb::borrow(out);
    to_ = Array::writable(made_, "out", out.is_none() && from_tensor_.dtype == HATTN_BFLOAT16);
    to_tensor_ = to_.tensor(layout, dtype_of(from_tensor_));
    // A new array may not show what its memory held before.
    if (out.is_none() && clears)
        std::memset(to_tensor_.data, 0, to_.elements() * (to_tensor_.dtype == HATTN_FLOAT32 ? 4 : 2));
}

nb::object apply_rope(nb::handle x, nb::handle out, Layout layout, const RopeOptions &rope, nb::handle positions,
                      nb::handle offsets, nb::handle lengths, std::optional<uintptr_t> queue) {
    const TurnedArrays arrays(x, out, layout, !lengths.is_none());
    const hattn_tensor &from = arrays.from(), &to = arrays.to();
    const int64_t batch = from.extent[0];
    const RopeCall call(&rope, positions, batch, from.extent[2]);
    call.check_tables(from.extent[3]);
    const auto integers = [&](nb::handle object, const char *name) {
        return object.is_none() ? std::vector<int32_t>() : Array::readable(object, name).integers(batch, kBatchOfX);
    };
    const std::vector<int32_t> starts = integers(offsets, "offsets"), rows = integers(lengths, "lengths");
    if (positions.is_none())
        check_starts(starts, rows, from.extent[2]);
    const GivenQueue given(queue);
    const std::shared_ptr<Session> session = Session::current();
    hattn_context *context = session->context();
    hattn_status status = HATTN_OK;
    {
        const ReleasedGil released;
        status =
            hattn_rope_apply_in_queue(context, given.get(), call.get(), &from, &to,
                                      starts.empty() ? nullptr : starts.data(), rows.empty() ? nullptr : rows.data());
    }
    check(status, context);
    return arrays.made();
}

}  // namespace hattn_python
