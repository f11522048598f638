// What a program moves between the first-level cache and what is behind it, by a model of the caches: valgrind's
// cachegrind.
#pragma once

#include <string>
#include <vector>

namespace hattn::bench {

// Lines of 64 bytes that the program's loads and stores miss, in a first-level cache of this machine's kind. It runs
// some 50 times slower. Throws std::runtime_error if there is no valgrind, or the program fails.
double missed_lines(const std::vector<std::string> &command);

}  // namespace hattn::bench
