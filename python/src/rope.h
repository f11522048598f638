// Rotary position embedding for Python.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "array.h"
#include "hattn/hattn.h"

namespace hattn_python {

// A hattn.Rope, checked by the Python layer as far as Python types go.
struct RopeOptions {
    bool interleaved = false;
    int64_t rotary_dim = 0;
    double base = 0;
    double scaling_factor = 0;
    nb::object cos = nb::none();  // float32 [1, 1, positions, rotary_dim / 2], contiguous, or None
    nb::object sin = nb::none();
};

// Holds what a hattn_rope points to, for `rows` rows of each sequence.
class RopeCall {
public:
    // options null: none. positions: int32 [rows] or [batch, rows], contiguous, or None.
    RopeCall(const RopeOptions *options, nb::handle positions, int64_t batch, int64_t rows);
    RopeCall(const RopeCall &) = delete;
    RopeCall &operator=(const RopeCall &) = delete;

    // Raises ValueError where tables have more pairs than heads of so many elements.
    void check_tables(int64_t head_dim) const;

    const hattn_rope *get() const {
        return given_ ? &rope_ : nullptr;
    }

private:
    void add_positions(const Array &positions, int64_t batch, int64_t rows);

    bool given_;
    hattn_rope rope_;
    Array cos_, sin_;
    std::vector<int32_t> positions_;  // a copy: what is checked is what is used
};

// Rows on their way from x to out, arrays of the layout.
class TurnedArrays {
public:
    // out None: a new NumPy array, which is zero at first if `clears`.
    TurnedArrays(nb::handle x, nb::handle out, Layout layout, bool clears);

    const hattn_tensor &from() const {
        return from_tensor_;
    }
    const hattn_tensor &to() const {
        return to_tensor_;
    }
    const nb::object &made() const {
        return made_;
    }
    // Of x and out.
    std::pair<Array, Array> take() {
        return {std::move(from_), std::move(to_)};
    }

private:
    Array from_, to_;
    hattn_tensor from_tensor_, to_tensor_;
    nb::object made_;
};

// offsets, lengths: [B] integers or None; queue: of a device, that x and out are on. Returns out.
nb::object apply_rope(nb::handle x, nb::handle out, Layout layout, const RopeOptions &rope, nb::handle positions,
                      nb::handle offsets, nb::handle lengths, std::optional<uintptr_t> queue);

}  // namespace hattn_python
