// The problem that a kernel is looked at with: a case over keys and values of a type, on one thread.
#pragma once

#include <string>

#include "hattn/hattn.hpp"
#include "machine_limits.h"
#include "runtime/kernel_table.h"
#include "typed_problem.h"

namespace hattn::roofline {

class TimedProblem {
public:
    // keys: of keys and values; queries and outputs are float32, or of the type if that has 16 bits. Integers have a
    // scale for each 32 elements of a key. Plans it, so throws hattn::Error where a kernel that is forced cannot.
    TimedProblem(const cases::Case &c, hattn_dtype keys);

    // Runs once and holds the result against the oracle; a sentence if it is wrong.
    std::string check(KeyStorage storage);
    double run();                // once; seconds
    std::string kernel() const;  // its name, of explain()
    bench::Isa isa() const;      // that it was compiled for; the widest there is for a generic one

private:
    std::string target() const;

    cases::TypedProblem problem_;
    Context context_;
    Plan plan_;
    Workspace workspace_;
};

}  // namespace hattn::roofline
