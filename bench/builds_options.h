// What hattn-bench-builds is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compared_problem.h"
#include "problem.h"

namespace hattn::bench {

// What a name on the command line stands for.
template<typename Value>
struct Named {
    const char *name;
    Value value;
};

struct BuildsOptions {
    std::vector<cases::Case> cases;
    Named<hattn_dtype> keys = {"float32", HATTN_FLOAT32};
    Named<Scales> scales = {"keys", Scales::kKeys};
    Named<cases::Layout> layout = {"bhsd", cases::Layout::kBhsd};
    int64_t page_size = 0;  // 0: not in pages
    int threads = 2;
    double seconds = 2.0;
    std::vector<std::string> builds;
};

// Throws std::invalid_argument where an option is not as it must be. Asked for help, says what there is and ends.
BuildsOptions parse_builds_options(int argc, char **argv);

}  // namespace hattn::bench
