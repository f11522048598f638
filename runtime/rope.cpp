#include "rope.h"

#include <cmath>

#include "checked.h"
#include "problem.h"
#include "status.h"

namespace hattn {

namespace {

int64_t checked_pairs(const hattn_rope &rope, int64_t head_dim) {
    require(rope.rotary_dim != 0 || head_dim % 2 == 0, HATTN_INVALID_ARGUMENT,
            "rope.rotary_dim: is 0, for all of the head, but the head dimension is odd, ", head_dim,
            ", so that an even one must be given");
    const int64_t dim = rope.rotary_dim == 0 ? head_dim : rope.rotary_dim;
    require(dim >= 2 && dim <= head_dim && dim % 2 == 0, HATTN_INVALID_ARGUMENT, "rope.rotary_dim: is ",
            rope.rotary_dim, ", but must be even, from 2 to the head dimension, ", head_dim, ", or 0 for all of it");
    return dim / 2;
}

void check_members(const hattn_rope &rope) {
    require(rope.style == HATTN_ROPE_HALF_SPLIT || rope.style == HATTN_ROPE_INTERLEAVED, HATTN_INVALID_ARGUMENT,
            "rope.style: is ", static_cast<int>(rope.style), ", which is no hattn_rope_style");
    require(std::isfinite(rope.base) && rope.base > 0, HATTN_INVALID_ARGUMENT, "rope.base: is ", rope.base,
            ", but must be positive and finite");
    require(std::isfinite(rope.scaling_factor) && rope.scaling_factor > 0, HATTN_INVALID_ARGUMENT,
            "rope.scaling_factor: is ", rope.scaling_factor, ", but must be positive and finite");
    require(!rope.cos_table == !rope.sin_table, HATTN_INVALID_ARGUMENT, "rope.cos_table: is ",
            rope.cos_table ? "given" : "null", ", but rope.sin_table is ", rope.sin_table ? "given" : "null");
    require(!rope.positions || (rope.positions_stride >= 0 && rope.positions_stride <= kMaxExtent),
            HATTN_INVALID_ARGUMENT, "rope.positions_stride: is ", rope.positions_stride, ", but must be from 0 to ",
            kMaxExtent);
    const int fewest = rope.cos_table ? 1 : 0;
    require(rope.table_positions >= fewest, HATTN_INVALID_ARGUMENT, "rope.table_positions: is ", rope.table_positions,
            ", but must be at least ", fewest, rope.cos_table ? " with tables" : "");
}

// Pair i is x[kStep * i], y[kStep * i].
template<int64_t kStep>
void turn_pairs(float *x, float *y, const double *cosines, const double *sines, int64_t pairs) {
    for (int64_t i = 0; i < pairs; ++i) {
        const double a = x[kStep * i], b = y[kStep * i];
        x[kStep * i] = static_cast<float>(a * cosines[i] - b * sines[i]);
        y[kStep * i] = static_cast<float>(b * cosines[i] + a * sines[i]);
    }
}

}  // namespace

void check_rope(const hattn_rope &rope, int64_t head_dim) {
    checked_pairs(rope, head_dim);
    check_members(rope);
}

size_t rope_memory_bytes(int64_t head_dim, int64_t workers) {
    return static_cast<size_t>((1 + 2 * workers) * (head_dim / 2)) * sizeof(double);
}

RowTurner::RowTurner(const hattn_rope &rope, int64_t head_dim, int64_t batch, const RowCounts &rows,
                     const int32_t *offsets, const char *offsets_name, void *memory)
    : rope_(rope),
      rows_(rows),
      offsets_(offsets),
      pairs_(checked_pairs(rope, head_dim)),
      frequencies_(static_cast<double *>(memory)) {
    check_members(rope);
    check_positions(batch, offsets_name);
    for (int64_t i = 0; i < pairs_ && !rope.cos_table; ++i) {
        frequencies_[i] =
            std::pow(rope.base, -static_cast<double>(i) / static_cast<double>(pairs_)) / rope.scaling_factor;
    }
}

void RowTurner::check_positions(int64_t batch, const char *offsets_name) const {
    const int64_t most = rope_.cos_table ? rope_.table_positions - 1 : kMaxExtent;
    const char *limit = rope_.cos_table ? "the last one of the tables" : "the largest";
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < rows_.of(b); ++i) {
            const int64_t position = position_of(b, i);
            require(position >= 0 && position <= most, HATTN_INVALID_ARGUMENT,
                    rope_.positions ? "rope.positions" : offsets_name, ": the position of row ", i, " of sequence ", b,
                    " is ", position, ", but must be from 0 to ", limit, ", ", most);
        }
    }
}

void RowTurner::move_to(int64_t sequence, int64_t row, int32_t worker) const {
    const int64_t position = position_of(sequence, row);
    double *cosines = angles(worker), *sines = cosines + pairs_;
    if (rope_.cos_table) {
        for (int64_t i = 0; i < pairs_; ++i) {
            cosines[i] = rope_.cos_table[position * pairs_ + i];
            sines[i] = rope_.sin_table[position * pairs_ + i];
        }
        return;
    }
    for (int64_t i = 0; i < pairs_; ++i) {
        const double angle = static_cast<double>(position) * frequencies_[i];
        cosines[i] = std::cos(angle);
        sines[i] = std::sin(angle);
    }
}

void RowTurner::turn(float *row, int32_t worker) const {
    const double *cosines = angles(worker), *sines = cosines + pairs_;
    if (rope_.style == HATTN_ROPE_INTERLEAVED) {
        turn_pairs<2>(row, row + 1, cosines, sines, pairs_);
    } else {
        turn_pairs<1>(row, row + pairs_, cosines, sines, pairs_);
    }
}

}  // namespace hattn

void hattn_rope_init(hattn_rope *rope) {
    if (!rope) {
        return;
    }
    *rope = {};
    rope->struct_size = sizeof(*rope);
    rope->base = 10000.0;
    rope->scaling_factor = 1.0;
}
