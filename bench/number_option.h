// What the options of the tools beside hattn are given.
#pragma once

#include <cstdint>
#include <string>

namespace hattn::bench {

// Throws std::invalid_argument with the option, what it is and what it must be.
[[noreturn]] void refuse_option(const std::string &option, const std::string &text, const std::string &expected);

// Of an option's text. Likewise throws where it is none.
double number_option(const std::string &option, const std::string &text, double least, double most);
int64_t whole_number_option(const std::string &option, const std::string &text, int64_t most);  // of 1 and more

}  // namespace hattn::bench
