// Memory of the host that a device copies from: page-locked where its driver gives such, so that a copy needs no
// detour.
#pragma once

#include <cstddef>
#include <optional>

#include "device_clock.h"
#include "hattn/hattn.hpp"

namespace hattn::bench {

class HostMemory {
public:
    HostMemory(const DeviceClock &clock, size_t bytes);
    ~HostMemory();
    HostMemory(const HostMemory &) = delete;
    HostMemory &operator=(const HostMemory &) = delete;

    void *data() const;
    bool page_locked() const {
        return locked_ != nullptr;
    }

private:
    void *context_;
    void *locked_ = nullptr;
    std::optional<Workspace> pageable_;
};

}  // namespace hattn::bench
