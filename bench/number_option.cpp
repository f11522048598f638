#include "number_option.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace hattn::bench {

namespace {

bool is_used_up(const std::string &text, const char *end) {
    return !text.empty() && *end == '\0';
}

}  // namespace

void refuse_option(const std::string &option, const std::string &text, const std::string &expected) {
    throw std::invalid_argument(option + ": is \"" + text + "\", but must be " + expected);
}

double number_option(const std::string &option, const std::string &text, double least, double most) {
    char *end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!is_used_up(text, end) || !(value >= least && value <= most)) {
        char expected[64];
        std::snprintf(expected, sizeof(expected), "a number from %g to %g", least, most);
        refuse_option(option, text, expected);
    }
    return value;
}

int64_t whole_number_option(const std::string &option, const std::string &text, int64_t most) {
    char *end = nullptr;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (!is_used_up(text, end) || value < 1 || value > most) {
        refuse_option(option, text, "a whole number from 1 to " + std::to_string(most));
    }
    return value;
}

}  // namespace hattn::bench
