#include "device.h"

#include <HalideRuntime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "device_queue.h"
#include "runtime/tensor.h"

namespace hattn {

namespace {

// What went wrong first on this thread since it was asked last. By default Halide's runtime would print it and abort.
// Cut off at some length, so that noting it cannot fail.
struct Failure {
    char text[512] = "";
    hattn_status status = HATTN_INTERNAL_ERROR;
};
thread_local Failure failure;

void keep(hattn_status status, std::string_view text) {
    if (failure.text[0] == '\0') {
        text.copy(failure.text, sizeof(failure.text) - 1);
        failure.status = status;
    }
}

void keep_message(void *, const char *message) {
    const std::string_view text = message;
    keep(HATTN_INTERNAL_ERROR, text.substr(0, text.find_last_not_of("\n ") + 1));
}

void keep_messages() {
    static std::once_flag once;
    std::call_once(once, [] { halide_set_error_handler(keep_message); });
}

// Why a device does not work, or "". Throws StatusError where that is for want of memory, which it may have later.
std::string try_device(const DeviceTargetInfo &target, int32_t device_id) {
    keep_messages();
    discard_device_error();
    std::string reason;
    try {
        reason = device_driver(target.device).unusable(device_id);
        if (!reason.empty()) {
            return reason;
        }
        DeviceQueue queue(target, device_id);
        halide_dimension_t shape = {0, 1, 1, 0};
        halide_buffer_t buffer = {};
        buffer.type = halide_type_of<int32_t>();
        buffer.dimensions = 1;
        buffer.dim = &shape;
        check_device(halide_device_malloc(queue.user_context(), &buffer, target.interface()), target, "memory");
        halide_device_free(queue.user_context(), &buffer);
    } catch (const StatusError &error) {
        if (error.status() == HATTN_OUT_OF_MEMORY) {
            throw;
        }
        reason = error.what();
    }
    discard_device_error();
    return reason;
}

// What a device says once and for all.
struct Answer {
    std::string unusable;
    int64_t shared_bytes = 0, compute_units = 0;
    bool warpgroups = false;
    std::string about = {};
};

bool knows_warpgroups(const DeviceIdentity &identity) {
    return identity.capability == kWarpgroupCapability && std::stoi(identity.driver) >= kWarpgroupDriver;
}

const Answer &answer_of(const DeviceTargetInfo &target, int32_t device_id) {
    static std::mutex mutex;
    static std::map<std::pair<hattn_device, int32_t>, Answer> answers;
    const std::lock_guard lock(mutex);
    const std::pair key(target.device, device_id);
    if (const auto found = answers.find(key); found != answers.end()) {
        return found->second;
    }
    Answer answer{try_device(target, device_id)};
    if (answer.unusable.empty()) {
        const DeviceDriver &driver = device_driver(target.device);
        answer.shared_bytes = driver.shared_bytes(device_id);
        const DeviceIdentity identity = driver.identity(device_id);
        answer.compute_units = identity.compute_units;
        if (target.device == HATTN_CUDA) {
            answer.warpgroups = knows_warpgroups(identity);
            answer.about = "compute capability " + identity.capability + " and driver " + identity.driver;
        }
    }
    return answers.emplace(key, std::move(answer)).first->second;
}

}  // namespace

const DeviceDriver &device_driver(hattn_device device) {
    return device == HATTN_OPENCL ? opencl_driver() : cuda_driver();
}

const DeviceTargetInfo *find_device_target(hattn_device device) {
    const auto targets = device_table().targets;
    const auto found = std::find_if(targets.begin(), targets.end(),
                                    [&](const DeviceTargetInfo &target) { return target.device == device; });
    return found == targets.end() ? nullptr : &*found;
}

std::string compiled_devices() {
    std::string names = "cpu";
    for (const DeviceTargetInfo &target : device_table().targets) {
        names += std::string(", ") + target.name;
    }
    return names;
}

std::string device_unusable(const DeviceTargetInfo &target, int32_t device_id) {
    try {
        return answer_of(target, device_id).unusable;
    } catch (const StatusError &error) {
        return error.what();
    }
}

DeviceLimits device_limits(const DeviceTargetInfo &target, int32_t device_id) {
    const Answer &answer = answer_of(target, device_id);
    return {target, answer.shared_bytes, answer.compute_units, answer.warpgroups, answer.about.c_str()};
}

const DeviceTargetInfo &usable_device(hattn_device device, int32_t device_id) {
    const DeviceTargetInfo *target = find_device_target(device);
    require(target, HATTN_NOT_SUPPORTED, "device: is ", static_cast<int>(device), " (", device_name(device),
            "), but this build has kernels for ", compiled_devices());
    const std::string &unusable = answer_of(*target, device_id).unusable;
    require(unusable.empty(), HATTN_NOT_SUPPORTED, "device: is ", static_cast<int>(device), " (", target->name,
            "), but ",
            device_id > 0 ? "that of device_id " + std::to_string(device_id) + " does not work"
                          : "this machine has none that works",
            ": ", unusable);
    return *target;
}

void note_device_error(hattn_status status, const char *text) {
    keep(status, text);
}

void discard_device_error() {
    failure = {};
}

void check_device(int code, const DeviceTargetInfo &target, const char *what) {
    // Kernels are compiled without assertions, that on the result of their launch included: then the message tells.
    if (code == 0 && failure.text[0] == '\0') {
        return;
    }
    const Failure told = std::exchange(failure, {});
    const bool memory = code == halide_error_code_out_of_memory || code == halide_error_code_device_malloc_failed;
    const std::string text = told.text[0] == '\0' ? "Halide's error " + std::to_string(code) : told.text;
    fail(memory ? HATTN_OUT_OF_MEMORY : told.status, target.name, ": ", what, ": ", text);
}

}  // namespace hattn
