// Rotary position embedding for Python.
#pragma once

#include <cstdint>

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
    void add_positions(int64_t batch, int64_t rows);

    bool given_;
    hattn_rope rope_;
    Array cos_, sin_, positions_;
};

// x, out: arrays of the layout, or out None: a new one; offsets, lengths: [B] integers or None. Returns out.
nb::object apply_rope(nb::handle x, nb::handle out, Layout layout, const RopeOptions &rope, nb::handle positions,
                      nb::handle offsets, nb::handle lengths);

}  // namespace hattn_python
