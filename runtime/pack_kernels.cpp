#include "pack_kernels.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "cpu_features.h"
#include "kernel_registry.h"
#include "status.h"
#include "tensor.h"

namespace hattn {

namespace {

using nlohmann::json;

// A kernel that cannot be used.
class Refusal {
public:
    Refusal(const std::string &path, const json &row) : path_(path), name_(row.at("name")) {}

    template<typename... Parts>
    [[noreturn]] void operator()(const Parts &...parts) const {
        fail(HATTN_NOT_SUPPORTED, "kernel pack ", path_, ": kernel ", name_, " ", parts...);
    }

private:
    const std::string &path_;
    std::string name_;
};

const char *kept(const json &text, std::deque<std::string> &strings) {
    return strings.emplace_back(text.get<std::string>()).c_str();
}

KernelKind kind_in(const json &row, const Refusal &refuse) {
    const std::string name = row.at("kind");
    KernelKind kind{};
    if (!parse_kernel_kind(name, &kind)) {
        refuse("is of unknown kind '", name, "'");
    }
    return kind;
}

uint32_t hooks_in(const json &row, const Refusal &refuse) {
    uint32_t hooks = 0;
    for (const std::string hook : row.at("hooks")) {
        const uint32_t bit = hook_bit(hook);
        if (!bit) {
            refuse("has unknown hook '", hook, "'");
        }
        hooks |= bit;
    }
    return hooks;
}

}  // namespace

KernelInfo read_kernel(const std::string &path, const json &row, std::deque<std::string> &strings) {
    const Refusal refuse(path, row);
    const std::string target_name = row.at("target"), storage = row.at("storage");
    const TargetInfo *target = find_target(target_name);
    if (!target) {
        refuse("is for target '", target_name, "', which this library does not know");
    }
    KernelInfo kernel{};
    kernel.name = kept(row.at("name"), strings);
    kernel.target = target->name;
    kernel.cpu_features = kept(row.at("needs"), strings);
    for (const char *needed : {target->cpu_features, kernel.cpu_features}) {
        if (!cpu_has_features(needed)) {
            refuse("needs ", needed, ", which this CPU (", cpu_model(), ") lacks");
        }
    }
    kernel.kind = kind_in(row, refuse);
    if (!parse_storage(storage, &kernel.storage)) {
        refuse("is for unknown storage '", storage, "'");
    }
    kernel.hooks = hooks_in(row, refuse);
    const json &tile = row.at("tile");
    kernel.tile = {tile.at(0), tile.at(1), tile.at(2), tile.at(3), tile.at(4)};
    return kernel;
}

DeviceKernelInfo read_device_kernel(const std::string &path, const json &row, std::deque<std::string> &strings) {
    const Refusal refuse(path, row);
    const std::string device = row.at("device");
    const auto targets = device_table().targets;
    const auto target =
        std::ranges::find_if(targets, [&](const DeviceTargetInfo &other) { return other.name == device; });
    if (target == targets.end()) {
        refuse("is for '", device, "', for which this build has no kernels");
    }
    DeviceKernelInfo kernel{};
    kernel.name = kept(row.at("name"), strings);
    kernel.target = target->name;
    kernel.kind = kind_in(row, refuse);
    kernel.hooks = hooks_in(row, refuse);
    const json &tile = row.at("tile");
    kernel.tile = {tile.at(0), tile.at(1), tile.at(2), tile.at(3), tile.at(4), tile.at(5).get<int>() != 0};
    kernel.matrix_type = static_cast<hattn_dtype>(row.at("matrix_type").get<int>());
    kernel.any_float = row.at("any_float");
    kernel.shared_bytes = row.at("shared_bytes");
    return kernel;
}

}  // namespace hattn
