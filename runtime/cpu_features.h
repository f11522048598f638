// What the CPU at hand can do, in the words that kernel targets use.
#pragma once

#include <string>

namespace hattn {

// features: space separated. Unknown words are taken as not available.
bool cpu_has_features(const char *features);

// Model name, e.g. for stamping tunings; "unknown" where the system does not tell.
std::string cpu_model();

// Cores this process may run on.
int available_cores();

}  // namespace hattn
