// Rotary position embedding (Su et al., RoFormer, 2021) of rows of float32, in double precision.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hattn/hattn.h"
#include "row_counts.h"

namespace hattn {

// Throws unless rows of heads of `head_dim` can be turned so.
void check_rope(const hattn_rope &rope, int64_t head_dim);

// Memory that turning rows of heads of `head_dim` takes on so many workers.
size_t rope_memory_bytes(int64_t head_dim, int64_t workers);

// The rows of one call: row i of sequence b stands at position_of(b, i).
class RowTurner {
public:
    // Checks `rope` for `rows` of each sequence, which start at offsets[b] (null: 0) unless rope has positions;
    // messages call them offsets_name. The memory is rope_memory_bytes() large and aligned to doubles.
    RowTurner(const hattn_rope &rope, int64_t head_dim, int64_t batch, const RowCounts &rows, const int32_t *offsets,
              const char *offsets_name, void *memory);

    // Prepares a worker for turning the row of every head at one place.
    void move_to(int64_t sequence, int64_t row, int32_t worker) const;
    // Turns the first rotary_dim elements of a row in place.
    void turn(float *row, int32_t worker) const;

    // Of the pairs that turn, where a worker was moved to.
    int64_t pairs() const {
        return pairs_;
    }
    bool interleaved() const {
        return rope_.style == HATTN_ROPE_INTERLEAVED;
    }
    const double *cosines(int32_t worker) const {
        return angles(worker);
    }
    const double *sines(int32_t worker) const {
        return angles(worker) + pairs_;
    }

private:
    int64_t position_of(int64_t sequence, int64_t row) const {
        if (rope_.positions) {
            return rope_.positions[rows_.entry(sequence) * rope_.positions_stride + rows_.first(sequence) + row];
        }
        return (offsets_ ? offsets_[sequence] : 0) + row;
    }
    // Cosines of the pairs, then their sines.
    double *angles(int32_t worker) const {
        return frequencies_ + (1 + 2 * int64_t{worker}) * pairs_;
    }
    void check_positions(int64_t batch, const char *offsets_name) const;

    const hattn_rope rope_;
    const RowCounts rows_;
    const int32_t *offsets_;
    int64_t pairs_;
    double *frequencies_;  // of the pairs, then the angles of each worker
};

}  // namespace hattn
