#include "device.h"

#include <algorithm>
#include <mutex>

#include "HalideRuntime.h"
#include "cuda_driver.h"

namespace hattn {

namespace {

// What Halide's runtime said last on this thread. By default it would print the message and abort.
thread_local std::string halide_message;

void keep_message(void *, const char *message) {
    halide_message = message;
    while (!halide_message.empty() && (halide_message.back() == '\n' || halide_message.back() == ' ')) {
        halide_message.pop_back();
    }
}

void keep_messages() {
    static std::once_flag once;
    std::call_once(once, [] { halide_set_error_handler(keep_message); });
}

std::string taken_message(int code) {
    std::string message = std::move(halide_message);
    halide_message.clear();
    if (message.empty()) {
        message = "Halide's error ";
        message += std::to_string(code);
    }
    return message;
}

std::string try_device(const DeviceTargetInfo &target) {
    keep_messages();
    if (target.device == HATTN_CUDA && !has_cuda_driver()) {
        return "there is no CUDA driver (libcuda.so.1)";
    }
    halide_dimension_t shape = {0, 1, 1, 0};
    halide_buffer_t buffer = {};
    buffer.type = halide_type_of<int32_t>();
    buffer.dimensions = 1;
    buffer.dim = &shape;
    const int code = halide_device_malloc(nullptr, &buffer, target.interface());
    if (code != 0 || buffer.device == 0) {
        return taken_message(code);
    }
    halide_device_free(nullptr, &buffer);
    return "";
}

}  // namespace

const DeviceTargetInfo *find_device_target(hattn_device device) {
    const auto targets = device_table().targets;
    const auto found = std::find_if(targets.begin(), targets.end(),
                                    [&](const DeviceTargetInfo &target) { return target.device == device; });
    return found == targets.end() ? nullptr : &*found;
}

const char *device_name(hattn_device device) {
    return device == HATTN_OPENCL ? "opencl" : device == HATTN_CUDA ? "cuda" : "cpu";
}

std::string compiled_devices() {
    std::string names = "cpu";
    for (const DeviceTargetInfo &target : device_table().targets) {
        names += std::string(", ") + target.name;
    }
    return names;
}

const std::string &device_unusable(const DeviceTargetInfo &target) {
    struct Answer {
        std::once_flag once;
        std::string text;
    };
    static Answer answers[HATTN_CUDA + 1];
    Answer &answer = answers[target.device];
    std::call_once(answer.once, [&] { answer.text = try_device(target); });
    return answer.text;
}

void discard_device_message() {
    halide_message.clear();
}

void check_device(int code, const DeviceTargetInfo &target, const char *what) {
    // Kernels are compiled without assertions, that on the result of their launch included: then the message tells.
    if (code == 0 && halide_message.empty()) {
        return;
    }
    const bool memory = code == halide_error_code_out_of_memory || code == halide_error_code_device_malloc_failed;
    fail(memory ? HATTN_OUT_OF_MEMORY : HATTN_INTERNAL_ERROR, target.name, ": ", what, ": ", taken_message(code));
}

}  // namespace hattn
