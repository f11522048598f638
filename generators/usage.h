// The command line of hattn-kernelgen.
#pragma once

#include <string>
#include <vector>

namespace hattn::generators {

// To standard error. Returns the status to end with.
int print_usage();

// What is wrong with a command and its arguments; empty: nothing.
std::string wrong_with(const std::vector<std::string> &words);

}  // namespace hattn::generators
