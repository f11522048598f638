// The command line of hattn-roofline.
#pragma once

#include <optional>
#include <string>

#include "case.h"
#include "schedules/tile.h"

namespace hattn::roofline {

struct Options {
    cases::Case problem;
    hattn_dtype keys = HATTN_FLOAT32;     // of keys and values, see TimedProblem
    std::string target;                   // empty: the best that runs here
    std::string kernel;                   // empty: what the planner takes
    std::optional<schedules::Tile> tile;  // of a flash kernel
    double seconds = 2.0;                 // of each measurement
    bool json = false;
    bool help = false;  // print kUsage, no more
};

// Throws std::invalid_argument with a sentence.
Options parse_options(int argc, char **argv);
extern const char *const kUsage;

}  // namespace hattn::roofline
