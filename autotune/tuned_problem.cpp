#include "tuned_problem.h"

#include <algorithm>
#include <cstdint>

namespace hattn::autotune {

namespace {

int64_t bits_of(hattn_dtype dtype) {
    switch (dtype) {
    case HATTN_FLOAT32:
        return 32;
    case HATTN_FLOAT16:
    case HATTN_BFLOAT16:
        return 16;
    case HATTN_INT4:
        return 4;
    default:
        return 8;
    }
}

// Bytes of a tensor relative to its first element.
struct Range {
    int64_t begin = 0, end = 0;

    explicit Range(const hattn_tensor &tensor) {
        const int64_t bits = bits_of(tensor.dtype);
        int64_t low = 0, high = 0;
        for (int d = 0; d < 4; ++d) {
            const int64_t last = (tensor.extent[d] - 1) * tensor.stride[d];
            (last < 0 ? low : high) += last;
        }
        begin = low * bits / 8;
        end = ((high + 1) * bits + 7) / 8;
    }
};

}  // namespace

TunedProblem::TunedProblem(const cases::Case &spec, const cases::StoredTypes &types, hattn_device device,
                           int32_t device_id)
    : TypedProblem(spec, types), device_args_(args) {
    desc.device = device;
    desc.device_id = device_id;
    if (device == HATTN_CPU) {
        return;
    }
    hattn_attention_args &there = device_args_;
    for (hattn_tensor *input :
         {&there.q, &there.k, &there.v, &there.k_scale, &there.v_scale, &there.bias, &there.mask}) {
        if (input->data) {
            inputs_.push_back(mirror(*input));
            inputs_.back().memory->write(inputs_.back().host, inputs_.back().bytes);
        }
    }
    for (hattn_tensor *output : {&there.out, &there.lse, &there.scores}) {
        if (output->data) {
            outputs_.push_back(mirror(*output));
        }
    }
}

TunedProblem::Mirror TunedProblem::mirror(hattn_tensor &tensor) const {
    const Range range(tensor);
    const auto bytes = static_cast<size_t>(range.end - range.begin);
    Mirror mirror{static_cast<char *>(tensor.data) + range.begin, bytes,
                  make_device_memory(desc.device, desc.device_id, bytes)};
    tensor.device = desc.device;
    tensor.device_id = desc.device_id;
    // An address, or a handle and an offset.
    const auto first = static_cast<size_t>(-range.begin);
    tensor.byte_offset = desc.device == HATTN_OPENCL ? first : 0;
    tensor.data = static_cast<char *>(mirror.memory->handle()) + (desc.device == HATTN_OPENCL ? 0 : first);
    return mirror;
}

void TunedProblem::fill_outputs() {
    TypedProblem::fill_outputs();
    for (Mirror &output : outputs_) {
        output.memory->write(output.host, output.bytes);
    }
}

void TunedProblem::read_output() {
    for (Mirror &output : outputs_) {
        output.memory->read(output.host, output.bytes);
    }
    TypedProblem::read_output();
}

void *TunedProblem::device_workspace(size_t bytes) {
    if (desc.device == HATTN_CPU) {
        return nullptr;
    }
    if (!workspace_ || workspace_bytes_ < bytes) {
        workspace_.reset();
        workspace_ = make_device_memory(desc.device, desc.device_id, bytes);
        workspace_bytes_ = bytes;
    }
    return workspace_->handle();
}

}  // namespace hattn::autotune
