// Attention of one shape on a device: tensors and workspaces are there, and any number of executes goes into the queue
// before anybody waits.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "device_clock.h"
#include "hattn/hattn.hpp"
#include "shape.h"
#include "tuned_problem.h"

namespace hattn::bench {

class DeviceAttention {
public:
    // Throws std::exception.
    explicit DeviceAttention(const autotune::Shape &shape);

    // Executes once and holds the result against the oracle; a sentence if it is wrong, else "".
    std::string check();
    // Of `runs` executes behind one another.
    double seconds(int runs);
    // Plan, operations and bytes of one execute, and where q, k, v and out are on the host.
    nlohmann::json describe() const;

private:
    void enqueue(int runs);
    void make_workspaces(int count);

    autotune::Shape shape_;
    autotune::TunedProblem problem_;
    Context context_;
    Plan plan_;
    DeviceClock clock_;
    hattn_attention_args args_;
    // Of the host, as many as runs are under way at once: each is read when the queue gets there. Ordinary memory, from
    // which a driver takes few bytes at once, see docs/devices.md.
    std::optional<Workspace> workspaces_;
    int workspace_count_ = 0;
};

}  // namespace hattn::bench
