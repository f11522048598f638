#include "device_clock.h"

#include <stdexcept>

#include "driver_function.h"
#include "hattn/hattn.hpp"
#include "stopwatch.h"

namespace hattn::bench {

namespace {

using autotune::check_driver;
using autotune::cuda_function;
using autotune::CudaContextScope;

// (CUDA Driver API: event management.)
class Event {
public:
    Event() {
        check_driver(cuda_function<int(void **, unsigned)>("cuEventCreate")(&event_, 0), "cuEventCreate");
    }
    ~Event() {
        cuda_function<int(void *)>("cuEventDestroy_v2")(event_);
    }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;

    void record(void *stream) {
        check_driver(cuda_function<int(void *, void *)>("cuEventRecord")(event_, stream), "cuEventRecord");
    }
    // Waits for this one.
    double seconds_since(const Event &begin) const {
        float milliseconds = 0.0f;
        check_driver(cuda_function<int(void *)>("cuEventSynchronize")(event_), "cuEventSynchronize");
        check_driver(
            cuda_function<int(float *, void *, void *)>("cuEventElapsedTime")(&milliseconds, begin.event_, event_),
            "cuEventElapsedTime");
        return 1e-3 * static_cast<double>(milliseconds);
    }

private:
    void *event_ = nullptr;
};

bool driver_has_events() {
    for (const char *name :
         {"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"}) {
        if (!autotune::find_driver_function<void()>(autotune::kCudaDriver, name)) {
            return false;
        }
    }
    return true;
}

}  // namespace

DeviceClock::DeviceClock(hattn_device device, int32_t device_id)
    : device_(device),
      queue_(device_queue(device, device_id)),
      has_events_(device == HATTN_CUDA && driver_has_events()) {}

void DeviceClock::wait() const {
    if (device_ == HATTN_OPENCL) {
        check_driver(autotune::opencl_function<int(void *)>("clFinish")(queue_.queue), "clFinish");
        return;
    }
    const CudaContextScope current(queue_.context);
    check_driver(cuda_function<int(void *)>("cuStreamSynchronize")(queue_.queue), "cuStreamSynchronize");
}

double DeviceClock::seconds_by_events(const std::function<void()> &enqueue) const {
    const CudaContextScope current(queue_.context);
    Event begin, end;
    begin.record(queue_.queue);
    enqueue();
    end.record(queue_.queue);
    return end.seconds_since(begin);
}

double DeviceClock::seconds(const std::function<void()> &enqueue) const {
    wait();
    if (has_events_) {
        return seconds_by_events(enqueue);
    }
    const Stopwatch watch;
    enqueue();
    wait();
    return watch.seconds();
}

}  // namespace hattn::bench
