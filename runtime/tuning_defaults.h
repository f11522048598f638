// The tuning databases the library is built with: the files in runtime/tuning_defaults, as text.
#pragma once

#include <span>

namespace hattn {

std::span<const char *const> tuning_defaults();

}  // namespace hattn
