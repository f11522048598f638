#include "convert.h"

#include <cstdlib>

#include "buffer.h"
#include "checked.h"
#include "selection.h"
#include "tensor.h"

namespace hattn {

namespace {

template<typename T>
Buffer buffer_of(T *data, const RowBlock &block) {
    return Buffer(data, {{block.dim, 1}, {block.rows, block.row_stride}, {block.heads, block.head_stride}});
}

template<typename From, typename To>
void call_conversion(const KernelInfo &kernel, ScratchArena &scratch, hattn_dtype type, const From *from,
                     const RowBlock &given, To *to, const RowBlock &wanted) {
    // Kernels index with 32 bits, so heads that lie far apart are taken one by one.
    const auto is_far = [](const RowBlock &block) {
        return block.heads > 1 && std::llabs(block.head_stride) > kShortHeadStride;
    };
    if (is_far(given) || is_far(wanted)) {
        RowBlock one_given = given, one_wanted = wanted;
        one_given.heads = one_wanted.heads = 1;
        for (int64_t h = 0; h < given.heads; ++h) {
            call_conversion(kernel, scratch, type, from + h * given.head_stride, one_given, to + h * wanted.head_stride,
                            one_wanted);
        }
        return;
    }
    Buffer input = buffer_of(from, given), output = buffer_of(to, wanted);
    int32_t number = type;
    void *context = &scratch;
    void *arguments[] = {&context, &number, input, output};
    kernel.function(arguments);
}

}  // namespace

void widen(const KernelInfo &kernel, ScratchArena &scratch, hattn_dtype type, const void *from, const RowBlock &given,
           float *to, const RowBlock &wanted) {
    call_conversion(kernel, scratch, type, static_cast<const uint16_t *>(from), given, to, wanted);
}

void narrow(const KernelInfo &kernel, ScratchArena &scratch, hattn_dtype type, const float *from, const RowBlock &given,
            void *to, const RowBlock &wanted) {
    call_conversion(kernel, scratch, type, from, given, static_cast<uint16_t *>(to), wanted);
}

void quantize(const QuantizeKernels &kernels, ScratchArena &scratch, const float *from, const RowBlock &given,
              const QuantizedRows &to) {
    static constexpr float kOne = 1.0f;
    const int64_t count = ceil_div(given.dim, kScaleBlock);
    int32_t type = to.type;
    void *context = &scratch;
    Buffer rows(from, {{given.dim, 1}, {given.rows, given.row_stride}});
    if (to.blocks) {
        Buffer scales(to.blocks, {{count, 1}, {given.rows, to.block_row_stride}});
        void *arguments[] = {&context, &type, rows, scales};
        kernels.block_scales->function(arguments);
    }
    Buffer channels(to.channels ? to.channels : &kOne, {{given.dim, to.channel_stride}});
    Buffer blocks(to.blocks ? to.blocks : &kOne,
                  {{count, to.blocks ? 1 : 0}, {given.rows, to.blocks ? to.block_row_stride : 0}});
    Buffer bytes(static_cast<uint8_t *>(to.data),
                 {{storage_bytes(to.type, given.dim), 1}, {given.rows, storage_bytes(to.type, to.row_stride)}});
    void *arguments[] = {&context, &type, rows, channels, blocks, bytes};
    kernels.quantize->function(arguments);
}

// The integers of a row, in whole vectors.
int64_t quantize_scratch_bytes(int64_t dim) {
    return (dim + 64) * static_cast<int64_t>(sizeof(int32_t)) + 4 * static_cast<int64_t>(kScratchAlignment);
}

}  // namespace hattn
