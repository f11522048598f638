#include "packed_problem.h"

#include <algorithm>
#include <cstring>

namespace hattn::cases {

namespace {

// Where sequences of these lengths end; without lengths each has `rows`.
std::vector<int32_t> cumulative(const std::vector<int32_t> &lengths, int64_t batch, int64_t rows) {
    std::vector<int32_t> ends = {0};
    for (int64_t b = 0; b < batch; ++b) {
        const int32_t length = lengths.empty() ? static_cast<int32_t>(rows) : lengths[static_cast<size_t>(b)];
        ends.push_back(ends.back() + length);
    }
    return ends;
}

std::byte *address(const hattn_tensor &tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    const auto size = static_cast<int64_t>(element_size(tensor.dtype));
    return static_cast<std::byte *>(tensor.data) + element_offset(tensor, i0, i1, i2, i3) * size;
}

// A part of a tensor along the batch and the sequence.
hattn_tensor crop(hattn_tensor tensor, int64_t batch, int64_t first, int64_t count) {
    if (tensor.data) {
        tensor.data = address(tensor, batch, 0, first, 0);
        tensor.extent[0] = 1;
        tensor.extent[2] = count;
    }
    return tensor;
}

// The same of a bias or mask, along the keys too; extents of 1 stay.
hattn_tensor crop_operand(hattn_tensor tensor, int64_t batch, int64_t first, int64_t count, int64_t keys) {
    if (tensor.data) {
        const bool rows = tensor.extent[2] > 1;
        tensor = crop(tensor, tensor.extent[0] > 1 ? batch : 0, rows ? first : 0, rows ? count : 1);
        tensor.extent[3] = tensor.extent[3] > 1 ? keys : 1;
    }
    return tensor;
}

}  // namespace

PackedProblem::PackedProblem(const Problem &padded, PackedKeys packed_keys) : desc(padded.desc), padded_(padded) {
    const Case &spec = padded.spec;
    cu_seqlens_q = cumulative(spec.q_lengths, spec.batch, spec.query_length);
    q = packed_rows(padded.q.view, cu_seqlens_q);
    out = packed_rows(padded.out.view, cu_seqlens_q);
    if (padded.lse.given()) {
        lse = packed_rows(padded.lse.view, cu_seqlens_q);
    }
    k = padded.k;
    v = padded.v;
    if (packed_keys == PackedKeys::kYes) {
        cu_seqlens_k = cumulative(spec.kv_lengths, spec.batch, spec.kv_length);
        k = packed_rows(padded.k.view, cu_seqlens_k);
        v = packed_rows(padded.v.view, cu_seqlens_k);
    }
    bias = packed_operand(padded.bias, spec.bias.varies[2]);
    mask = packed_operand(padded.mask, spec.mask.varies[2]);

    desc.packed_queries = std::max(cu_seqlens_q.back(), 1);
    args = padded.args;
    args.q = q.view;
    args.k = k.view;
    args.v = v.view;
    args.out = out.view;
    args.lse = lse.view;
    args.bias = bias.view;
    args.mask = mask.view;
    args.q_lengths = nullptr;
    args.cu_seqlens_q = cu_seqlens_q.data();
    if (packed_keys == PackedKeys::kYes) {
        args.kv_lengths = nullptr;
        args.cu_seqlens_k = cu_seqlens_k.data();
    }
}

TensorData PackedProblem::packed_rows(const hattn_tensor &padded, const std::vector<int32_t> &cu_seqlens) const {
    const bool dense = padded_.spec.layout == Layout::kBhsd;
    TensorData packed = make_tensor(padded.dtype, {1, padded.extent[1], cu_seqlens.back(), padded.extent[3]},
                                    dense ? std::array{0, 1, 2, 3} : std::array{0, 2, 1, 3});
    const auto size = element_size(padded.dtype);
    for (int64_t b = 0; b + 1 < static_cast<int64_t>(cu_seqlens.size()); ++b) {
        const int64_t first = cu_seqlens[static_cast<size_t>(b)], end = cu_seqlens[static_cast<size_t>(b) + 1];
        const int64_t from = padded.extent[0] > 1 ? b : 0;
        for_each_index({1, padded.extent[1], end - first, padded.extent[3]},
                       [&](int64_t, int64_t h, int64_t i, int64_t d) {
                           std::memcpy(address(packed.view, 0, h, first + i, d), address(padded, from, h, i, d), size);
                       });
    }
    return packed;
}

TensorData PackedProblem::packed_operand(const TensorData &padded, bool varies_over_rows) const {
    return varies_over_rows ? packed_rows(padded.view, cu_seqlens_q) : padded;
}

PackedProblem::Alone PackedProblem::alone(int64_t sequence) const {
    const auto b = static_cast<size_t>(sequence);
    const int64_t row = cu_seqlens_q[b], rows = cu_seqlens_q[b + 1] - row;
    Alone one{desc, args};
    one.desc.batch = 1;
    one.desc.packed_queries = 0;
    one.args.cu_seqlens_q = one.args.cu_seqlens_k = one.args.kv_lengths = nullptr;
    one.args.causal_offsets = args.causal_offsets ? args.causal_offsets + sequence : nullptr;
    for (hattn_tensor *tensor : {&one.args.q, &one.args.out, &one.args.lse}) {
        *tensor = crop(*tensor, 0, row, rows);
    }
    const bool packed = args.cu_seqlens_k != nullptr;
    const int64_t key = packed ? cu_seqlens_k[b] : 0;
    const int64_t keys = packed ? cu_seqlens_k[b + 1] - key : args.kv_lengths ? args.kv_lengths[b] : k.view.extent[2];
    for (hattn_tensor *tensor : {&one.args.k, &one.args.v}) {
        *tensor = crop(*tensor, packed ? 0 : sequence, key, keys);
    }
    for (hattn_tensor *tensor : {&one.args.bias, &one.args.mask}) {
        *tensor = crop_operand(*tensor, sequence, row, rows, keys);
    }
    return one;
}

}  // namespace hattn::cases
