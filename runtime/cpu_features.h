// What the CPU at hand can do, in the words that kernel targets use.
#pragma once

#include <istream>
#include <string>

namespace hattn {

// features: space separated, alternatives with bars between them: "avx2 amd|intel". Unknown words are taken as not
// available.
bool cpu_has_features(const char *features);

// Asks the operating system for what it gives a process on request alone, among features that the CPU has; false if it
// refuses.
bool request_cpu_features(const char *features);

// Model name, e.g. for stamping tunings; "unknown" where the system does not tell. On ARM, which has codes in place of
// names, those of every kind of core: "implementer 0x41 part 0xd05 + implementer 0x41 part 0xd0b".
std::string cpu_model();
std::string cpu_model_in(std::istream &info);  // in a text like /proc/cpuinfo

// Cores this process may run on.
int available_cores();

}  // namespace hattn
