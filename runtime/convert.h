// Rows between float32 and the storage types, by the conversion kernels.
#pragma once

#include <cstdint>

#include "hattn/hattn.h"
#include "kernel_table.h"
#include "scratch.h"

namespace hattn {

// Rows (d, i, h) with unit stride in d; strides in elements.
struct RowBlock {
    int64_t dim, rows, heads;
    int64_t row_stride, head_stride;

    int64_t elements() const {
        return dim * rows * heads;
    }
};
inline RowBlock dense_rows(int64_t dim, int64_t rows, int64_t heads) {
    return {dim, rows, heads, dim, dim * rows};
}

// Between float16 or bfloat16 and float32. Extents of both blocks are the same.
void widen(const KernelInfo &kernel, ScratchArena &scratch, hattn_dtype type, const void *from, const RowBlock &given,
           float *to, const RowBlock &wanted);
void narrow(const KernelInfo &kernel, ScratchArena &scratch, hattn_dtype type, const float *from, const RowBlock &given,
            void *to, const RowBlock &wanted);

// Rows of one head that are quantised, and their scales.
struct QuantizedRows {
    hattn_dtype type;
    void *data;
    int64_t row_stride;  // in elements
    const float *channels;
    int64_t channel_stride;  // 0 or 1
    float *blocks;           // (block, i); null: none
    int64_t block_row_stride;
};
struct QuantizeKernels {
    const KernelInfo *block_scales, *quantize;
};

// float32 to int8 or int4. With `blocks` these scales are computed and written, without the channels' are used alone.
void quantize(const QuantizeKernels &kernels, ScratchArena &scratch, const float *from, const RowBlock &given,
              const QuantizedRows &to);

// Bytes of scratch that a call takes at most.
int64_t quantize_scratch_bytes(int64_t dim);

}  // namespace hattn
