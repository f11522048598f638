// A problem that candidates are tried on: where it is for a device, with its tensors there, so that what is timed
// copies none of them.
#pragma once

#include <memory>
#include <vector>

#include "device_memory.h"
#include "typed_problem.h"

namespace hattn::autotune {

class TunedProblem : public cases::TypedProblem {
public:
    // On `device` if that is not the CPU. Throws std::runtime_error if there is no memory there.
    TunedProblem(const cases::Case &spec, const cases::StoredTypes &types, hattn_device device, int32_t device_id);

    // As those of the base, which is of the host.
    void fill_outputs();
    void read_output();

    // The problem's, on the device if it is for one.
    const hattn_attention_args &device_args() const {
        return device_args_;
    }
    // Of the device, for plans of this problem one after the other; null if it is for the CPU.
    void *device_workspace(size_t bytes);

private:
    // A tensor that has a copy on the device, from its lowest byte on.
    struct Mirror {
        char *host;
        size_t bytes;
        std::unique_ptr<DeviceMemory> memory;
    };
    Mirror mirror(hattn_tensor &tensor) const;

    hattn_attention_args device_args_;
    std::vector<Mirror> inputs_, outputs_;
    std::unique_ptr<DeviceMemory> workspace_;
    size_t workspace_bytes_ = 0;
};

}  // namespace hattn::autotune
