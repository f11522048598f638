// A queue of a device, as Python gives it.
#pragma once

#include <cstdint>
#include <optional>

#include "hattn/hattn.h"

namespace hattn_python {

class GivenQueue {
public:
    // handle: a CUstream or cl_command_queue; none: the library's own.
    explicit GivenQueue(std::optional<uintptr_t> handle = std::nullopt) : given_(handle.has_value()) {
        queue_.queue = reinterpret_cast<void *>(handle.value_or(0));
    }

    const hattn_queue *get() const {
        return given_ ? &queue_ : nullptr;
    }

private:
    bool given_;
    hattn_queue queue_ = HATTN_QUEUE_INIT;
};

}  // namespace hattn_python
