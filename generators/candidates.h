// The tiles worth trying for a kernel, for the autotuner to choose from: lists of values times rules.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_spec.h"

namespace hattn::generators {

// Why a kernel of the target cannot have the tile; empty: it can. Kinds whose tile is no choice take that of the
// library alone.
std::string why_illegal(const schedules::TargetRow &target, KernelKind kind, const schedules::Tile &tile);

// Legal ones, ordered by rows; empty for kinds whose tile is no choice.
std::vector<schedules::Tile> candidates(const schedules::TargetRow &target, KernelKind kind);

// Those of every kind, without hooks, over float32.
void for_each_candidate(const schedules::TargetRow &target, const std::function<void(const KernelSpec &)> &visit);

}  // namespace hattn::generators
