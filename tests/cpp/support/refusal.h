// Expectations on errors.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "handles.h"

namespace hattn::test {

// What a wrong call must answer: the status and the words its sentence must hold, which are the argument and both
// values.
struct Refusal {
    hattn_status status = HATTN_INVALID_ARGUMENT;
    std::vector<std::string> words;
};

// Empty if the outcome is the refusal; else what is wrong with it. A word counts only by itself: "1" is not in "12".
std::string mismatch(const Outcome &outcome, const Refusal &refusal);

// An enumeration holding a value it does not have, as a C caller may pass; a cast would be undefined.
template<typename Enum>
Enum unknown(int value) {
    static_assert(sizeof(Enum) == sizeof(value));
    Enum result;
    std::memcpy(&result, &value, sizeof(value));
    return result;
}

bool has_word(const std::string &sentence, const std::string &word);

}  // namespace hattn::test
