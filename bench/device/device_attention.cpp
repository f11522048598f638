#include "device_attention.h"

#include "verify.h"
#include "work.h"

namespace hattn::bench {

namespace {

using nlohmann::json;

constexpr size_t kAlignment = 64;  // of workspaces

cases::Case case_without_lse(const autotune::Shape &shape) {
    cases::Case c = autotune::case_of(shape);
    c.lse = false;
    return c;
}

// What tensor cores multiply, and weights are rounded to.
hattn_dtype matrix_type(const json &plan) {
    const json type = plan.value("matrix_type", json());
    return type == "float16" ? HATTN_FLOAT16 : type == "bfloat16" ? HATTN_BFLOAT16 : HATTN_FLOAT32;
}

const char *type_name(hattn_dtype dtype) {
    switch (dtype) {
    case HATTN_FLOAT32:
        return "float32";
    case HATTN_FLOAT16:
        return "float16";
    case HATTN_BFLOAT16:
        return "bfloat16";
    default:
        return "";  // no array that others read
    }
}

json tensor_json(const hattn_tensor &tensor) {
    return {{"address", reinterpret_cast<uintptr_t>(tensor.data)},
            {"dtype", type_name(tensor.dtype)},
            {"shape", std::vector<int64_t>(tensor.extent, tensor.extent + 4)}};
}

}  // namespace

DeviceAttention::DeviceAttention(const autotune::Shape &shape)
    : shape_(shape),
      problem_(case_without_lse(shape), types_of(shape), shape.device, shape.device_id),
      plan_(context_, problem_.desc),
      clock_(shape.device, shape.device_id),
      args_(problem_.device_args()) {
    args_.workspace_size = (plan_.workspace_size() + kAlignment - 1) / kAlignment * kAlignment;
    args_.device_workspace_size = plan_.device_workspace_size();
    args_.device_workspace = problem_.device_workspace(args_.device_workspace_size);
    args_.queue = &clock_.queue();
    make_workspaces(1);
}

void DeviceAttention::make_workspaces(int count) {
    if (count > workspace_count_) {
        workspaces_.reset();
        workspaces_.emplace(args_.workspace_size * static_cast<size_t>(count));
        workspace_count_ = count;
    }
}

void DeviceAttention::enqueue(int runs) {
    for (int run = 0; run < runs; ++run) {
        args_.workspace = static_cast<char *>(workspaces_->data()) + args_.workspace_size * static_cast<size_t>(run);
        plan_.execute(args_);
    }
}

double DeviceAttention::seconds(int runs) {
    make_workspaces(runs);
    return clock_.seconds([&] { enqueue(runs); });
}

std::string DeviceAttention::check() {
    problem_.fill_outputs();
    seconds(1);
    problem_.read_output();
    const cases::Rounding rounding{problem_.args.out.dtype, matrix_type(json::parse(plan_.explain()))};
    return Verification(problem_.twin, Verification::kBudget, rounding).check(problem_.twin);
}

json DeviceAttention::describe() const {
    const cases::Case &spec = problem_.twin.spec;
    const double elements = visible_bytes(spec) / sizeof(float);
    return {{"plan", json::parse(plan_.explain())},
            {"flops", visible_flops(spec)},
            {"bytes", elements * shape_.bytes_per_element()},
            {"events", clock_.has_events()},
            {"tensors",
             {{"q", tensor_json(problem_.args.q)},
              {"k", tensor_json(problem_.args.k)},
              {"v", tensor_json(problem_.args.v)},
              {"out", tensor_json(problem_.args.out)}}}};
}

}  // namespace hattn::bench
