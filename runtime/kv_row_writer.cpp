#include "kv_row_writer.h"

#include <cstring>

#include "rope.h"
#include "tensor.h"

namespace hattn {

namespace {

// Rows of a type that both have; strides in bytes.
void copy_rows(const void *from, int64_t from_stride, void *to, int64_t to_stride, int64_t row_bytes, int64_t rows) {
    if (from_stride == row_bytes && to_stride == row_bytes) {
        std::memcpy(to, from, static_cast<size_t>(rows * row_bytes));
        return;
    }
    for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(static_cast<char *>(to) + i * to_stride, static_cast<const char *>(from) + i * from_stride,
                    static_cast<size_t>(row_bytes));
    }
}

void copy_run(const hattn_tensor &from, const hattn_tensor &to, const Run &run) {
    const int64_t element = storage_bytes(to.dtype, 1);
    for (int64_t h = 0; h < to.extent[1]; ++h) {
        copy_rows(address(from, run.sequence, h, run.row), from.stride[2] * element, address(to, run.page, h, run.at),
                  to.stride[2] * element, to.extent[3] * element, run.rows);
    }
}

void turn_run(const RowTurner &rope, const hattn_tensor &keys, const Run &run, int32_t worker) {
    for (int64_t i = 0; i < run.rows; ++i) {
        rope.move_to(run.sequence, run.row + i, worker);
        for (int64_t h = 0; h < keys.extent[1]; ++h) {
            rope.turn(element<float>(keys, run.page, h, run.at + i), worker);
        }
    }
}

// Converts rows of one side on their way into the cache, through float32.
class RowWriter {
public:
    RowWriter(const hattn_kv_cache &cache, const CachedSide &side, const hattn_tensor &from, int32_t worker)
        : cache_(cache),
          side_(side),
          from_(from),
          worker_(worker),
          dim_(from.extent[3]),
          floats_(reinterpret_cast<float *>(static_cast<char *>(cache.append_memory->data()) +
                                            worker * cache.worker_bytes())),
          scratch_(floats_ + cache.row_floats(), static_cast<size_t>(quantize_scratch_bytes(dim_))) {}

    void write(const Run &run, const RowTurner *rope) {
        // Turning is prepared once per row, for all heads.
        const int64_t step = rope ? 1 : run.rows;
        for (int64_t i = 0; i < run.rows; i += step) {
            if (rope) {
                rope->move_to(run.sequence, run.row + i, worker_);
            }
            for (int64_t h = 0; h < from_.extent[1]; ++h) {
                const RowBlock block = load(run, h, i, step, rope != nullptr);
                if (rope) {
                    rope->turn(floats_, worker_);
                }
                store(block, {run.sequence, run.row + i, step, run.page, run.at + i}, h);
            }
        }
    }

private:
    // Leaves rows in float32 at loaded_; `own`: in memory that may be written to.
    RowBlock load(const Run &run, int64_t head, int64_t i, int64_t rows, bool own) {
        const void *given = address(from_, run.sequence, head, run.row + i);
        const RowBlock dense = dense_rows(dim_, rows, 1);
        const RowBlock strided = {dim_, rows, 1, from_.stride[2], 0};
        loaded_ = floats_;
        if (from_.dtype != HATTN_FLOAT32) {
            widen(*cache_.kernels.widen, scratch_, from_.dtype, given, strided, floats_, dense);
            return dense;
        }
        if (own) {
            std::memcpy(floats_, given, static_cast<size_t>(dim_) * sizeof(float));  // a single row
            return dense;
        }
        loaded_ = static_cast<const float *>(given);
        return strided;
    }

    void store(const RowBlock &block, const Run &run, int64_t head) {
        const hattn_tensor &rows = side_.rows;
        void *to = address(rows, run.page, head, run.at);
        if (is_quantized(rows.dtype)) {
            quantize(cache_.kernels.quantize, scratch_, loaded_, block, quantized(run, head));
        } else if (rows.dtype == HATTN_FLOAT32) {
            copy_rows(loaded_, block.row_stride * 4, to, rows.stride[2] * 4, dim_ * 4, run.rows);
        } else {
            narrow(*cache_.kernels.narrow, scratch_, rows.dtype, loaded_, block, to,
                   {dim_, run.rows, 1, rows.stride[2], 0});
        }
    }

    QuantizedRows quantized(const Run &run, int64_t head) const {
        const hattn_tensor &rows = side_.rows, &scales = side_.scales;
        QuantizedRows to{rows.dtype, address(rows, run.page, head, run.at), rows.stride[2], nullptr, 0, nullptr, 0};
        if (side_.computes_scales) {
            to.blocks = element<float>(scales, run.page, head, run.at);
            to.block_row_stride = scales.stride[2];
        } else {
            to.channels = element<const float>(scales, 0, scales.extent[1] > 1 ? head : 0, 0);
            to.channel_stride = scales.extent[3] > 1 ? 1 : 0;
        }
        return to;
    }

    const hattn_kv_cache &cache_;
    const CachedSide &side_;
    const hattn_tensor &from_;
    const int32_t worker_;
    const int64_t dim_;
    float *floats_;
    ScratchArena scratch_;
    const float *loaded_ = nullptr;
};

}  // namespace

void write_run(const hattn_kv_cache &cache, const CachedSide &side, const hattn_tensor &from, const Run &run,
               const RowTurner *rope, int32_t worker) {
    const bool floats = from.dtype == HATTN_FLOAT32;
    if (from.dtype != side.rows.dtype || (rope && !floats)) {
        RowWriter(cache, side, from, worker).write(run, rope);
        return;
    }
    copy_run(from, side.rows, run);
    if (rope) {
        turn_run(*rope, side.rows, run, worker);
    }
}

}  // namespace hattn
