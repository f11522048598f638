// What the stages of a kernel are asked for: its StageOptions, by kind, storage, tile and target. Constants that are
// measured name the decision that has the figures.
#pragma once

#include "kernel_inputs.h"
#include "kernel_spec.h"
#include "stage_options.h"

namespace hattn::generators {

// Of split_kv: elements of the head lie in the lanes of vectors, else rows.
bool has_head_in_lanes(const KernelSpec &spec, const schedules::TargetRow &target);

// Of naive, flash and split_kv.
StageOptions attention_options(const KernelSpec &spec, const schedules::TargetRow &target,
                               const AttentionInputs &inputs);
StageOptions unfused_score_options(const KernelSpec &spec, const schedules::TargetRow &target, bool head_in_lanes);

}  // namespace hattn::generators
