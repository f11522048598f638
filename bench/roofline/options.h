// The command line of hattn-roofline.
#pragma once

#include <optional>
#include <string>

#include "bench_cases.h"
#include "schedules/tile.h"

namespace hattn::roofline {

struct Options {
    cases::Case problem;
    std::string target;                   // empty: the best that runs here
    std::string kernel;                   // empty: what the planner takes
    std::optional<schedules::Tile> tile;  // of a flash kernel
    double seconds = 2.0;                 // of each measurement
    bool json = false;
};

// Throws std::invalid_argument with a sentence.
Options parse_options(int argc, char **argv);
extern const char *const kUsage;

}  // namespace hattn::roofline
