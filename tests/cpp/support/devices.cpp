#include "devices.h"

#include <algorithm>

#include "handles.h"
#include "json_text.h"

namespace hattn::test {

namespace {

const nlohmann::json &devices_info() {
    static const nlohmann::json info = info_of(device_context()).at("devices");
    return info;
}

}  // namespace

hattn_context *device_context() {
    static const ContextPtr context = make_context();
    return context.get();
}

const std::vector<std::string> &device_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (const nlohmann::json &device : devices_info()) {
            list.push_back(device.at("name"));
        }
        return list;
    }();
    return names;
}

bool has_cuda_kernels() {
    const std::vector<std::string> &names = device_names();
    return std::find(names.begin(), names.end(), "cuda") != names.end();
}

std::vector<std::string> usable_devices() {
    std::vector<std::string> names = device_names();
    std::erase_if(names, [](const std::string &name) { return !device_unusable(name).empty(); });
    return names;
}

std::string device_unusable(const std::string &name) {
    for (const nlohmann::json &device : devices_info()) {
        if (device.at("name") == name) {
            return device.at("usable") ? "" : device.at("why_not").get<std::string>();
        }
    }
    return "the build has no kernels for it";
}

hattn_device device_of(const std::string &name) {
    return name == "opencl" ? HATTN_OPENCL : HATTN_CUDA;
}

bool device_supports(const cases::Case &c) {
    constexpr int64_t kLargestHead = 256;
    return std::max(c.key_dim, c.value_dim) <= kLargestHead;
}

hattn_dtype matrix_type(const hattn_plan *plan) {
    const nlohmann::json type = explanation_of(plan).value("matrix_type", nlohmann::json());
    return type == "float16" ? HATTN_FLOAT16 : type == "bfloat16" ? HATTN_BFLOAT16 : HATTN_FLOAT32;
}

}  // namespace hattn::test
