// A plan: the problem, its kernels, and where everything lies in the workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "context.h"
#include "device/device_plan.h"
#include "problem.h"
#include "selection.h"

namespace hattn {

// Sizes that bound what any execute of a plan needs; they grow with tiles and threads, and with the lengths only up to
// a limit.
struct WorkspaceLayout {
    int64_t task_capacity = 0;   // tasks of one wave
    int64_t state_floats = 0;    // pool of partial states of one wave
    int64_t weight_floats = 0;   // pool of weights of one batch of unfused tasks
    int64_t segment_floats = 0;  // per worker: an unwanted lse, and one or two partial states
    int64_t scratch_bytes = 0;   // per worker: intermediates of a kernel
    size_t tasks_offset = 0, states_offset = 0, weights_offset = 0, sinks_offset = 0, lse_offset = 0,
           workers_offset = 0;
    size_t worker_stride = 0;
    size_t bytes = 0;
};

// Waves keep the task list and the pool of partial states from growing with the problem, batches that of weights.
inline constexpr int64_t kMaxTasksPerWave = 1024;
inline constexpr int64_t kStatePoolFloats = int64_t{1} << 15;  // per thread
inline constexpr int64_t kWeightPoolFloats = int64_t{1} << 20;

}  // namespace hattn

struct hattn_plan {
    hattn::Executor executor;
    std::shared_ptr<const hattn::TuningDatabase> tuning;
    hattn::Problem problem;
    hattn::KernelSet kernels;
    hattn::KernelPacks packs;  // that hold some of them
    hattn::WorkspaceLayout layout;
    std::optional<hattn::DevicePlan> device;  // then there are no kernels, and the layout is just a size
};

namespace hattn {

// Validates, selects kernels and lays the workspace out; throws StatusError.
hattn_plan make_plan(const hattn_context &context, const hattn_attention_desc &desc);

}  // namespace hattn
