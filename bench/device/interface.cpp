#include "interface.h"

#include <memory>
#include <string>

#include "device_attention.h"
#include "device_limits.h"
#include "multiply_adds.h"

namespace {

using namespace hattn;
using bench::DeviceAttention;
using bench::DeviceCopy;
using bench::MultiplyAdds;

thread_local std::string error, text;

// What the call returns, or `otherwise`.
template<typename Result, typename Call>
Result guarded(Result otherwise, Call call) {
    try {
        return call();
    } catch (const std::exception &caught) {
        error = caught.what();
        return otherwise;
    }
}

template<typename Call>
const char *guarded_text(Call call) {
    return guarded<const char *>(nullptr, [&] {
        text = call();
        return text.c_str();
    });
}

autotune::Shape device_named(const char *device) {
    return autotune::read_shape({{"device", device}});
}

}  // namespace

const char *hattn_device_bench_error(void) {
    return error.c_str();
}

const char *hattn_device_bench_info(void) {
    return guarded_text([] { return Context().info(); });
}

const char *hattn_device_bench_attributes(const char *device) {
    return guarded_text([&] {
        const autotune::Shape named = device_named(device);
        return bench::device_attributes(named.device, named.device_id).dump();
    });
}

void *hattn_device_bench_attention(const char *shape) {
    return guarded<void *>(nullptr,
                           [&] { return new DeviceAttention(autotune::read_shape(nlohmann::json::parse(shape))); });
}

const char *hattn_device_bench_attention_describe(void *attention) {
    return guarded_text([&] { return static_cast<DeviceAttention *>(attention)->describe().dump(); });
}

const char *hattn_device_bench_attention_check(void *attention) {
    return guarded_text([&] { return static_cast<DeviceAttention *>(attention)->check(); });
}

double hattn_device_bench_attention_seconds(void *attention, int runs) {
    return guarded(-1.0, [&] { return static_cast<DeviceAttention *>(attention)->seconds(runs); });
}

void hattn_device_bench_attention_close(void *attention) {
    delete static_cast<DeviceAttention *>(attention);
}

void *hattn_device_bench_copy(const char *device, double bytes) {
    return guarded<void *>(nullptr, [&] {
        const autotune::Shape named = device_named(device);
        return new DeviceCopy(named.device, named.device_id, static_cast<size_t>(bytes));
    });
}

double hattn_device_bench_copy_seconds(void *copy, int runs) {
    return guarded(-1.0, [&] { return static_cast<DeviceCopy *>(copy)->seconds(runs); });
}

void hattn_device_bench_copy_close(void *copy) {
    delete static_cast<DeviceCopy *>(copy);
}

void *hattn_device_bench_multiply_adds(const char *device) {
    return guarded<void *>(nullptr, [&] {
        const autotune::Shape named = device_named(device);
        return new MultiplyAdds(named.device, named.device_id);
    });
}

double hattn_device_bench_multiply_adds_operations(void *multiply_adds) {
    return static_cast<MultiplyAdds *>(multiply_adds)->operations();
}

double hattn_device_bench_multiply_adds_seconds(void *multiply_adds, int runs) {
    return guarded(-1.0, [&] { return static_cast<MultiplyAdds *>(multiply_adds)->seconds(runs); });
}

void hattn_device_bench_multiply_adds_close(void *multiply_adds) {
    delete static_cast<MultiplyAdds *>(multiply_adds);
}
