// The one list of cases. Each family is a function; the list is their concatenation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "case.h"

namespace hattn::cases {

// Appends c under that name.
void add(std::vector<Case> &list, std::string name, Case c);

// Names are unique and do not change from run to run.
const std::vector<Case> &all_cases();

// Cases with at most this much work() are small enough to run on every kernel of the table.
inline constexpr double kSmallWork = 3e5;

std::vector<Case> shape_cases();     // dims, head ratios, tile and chunk edges, empty extents
std::vector<Case> position_cases();  // causal, windows, offsets, lengths
std::vector<Case> hook_cases();      // score hooks, their combinations and broadcasts, sinks, score outputs
std::vector<Case> storage_cases();   // strides
std::vector<Case> value_cases();     // extreme logits, values behind masks, exact results
std::vector<Case> random_cases(size_t count);

}  // namespace hattn::cases
