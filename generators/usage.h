// The command line of hattn-kernelgen.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace hattn::generators {

void print_usage(std::ostream &out);

// What is wrong with a command and its arguments; empty: nothing.
std::string wrong_with(const std::vector<std::string> &words);

}  // namespace hattn::generators
