// What Halide says while it compiles. Its warnings point at schedules that do not do what they say, so here they are
// errors.
#pragma once

#include <string>

namespace hattn::generators {

// From now on, errors of Halide are std::runtime_error, and warnings are kept.
void report_strictly();

// Forgets the warnings there were; returns one of them, or an empty text.
std::string take_warning();

}  // namespace hattn::generators
