// Which bytes of a block's shared memory stages have, after Halide has made one array of all.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::cuda {

struct ByteRange {
    int64_t first = 0, end = 0;

    bool overlaps(const ByteRange &other) const {
        return first < other.end && other.first < end;
    }
    bool contains(const ByteRange &other) const {
        return first <= other.first && other.end <= end;
    }
};

// By the name of the stage.
using StageRanges = std::map<std::string, ByteRange>;

// What the stages within a loop store into the array, and those outside that are used throughout it. Throws
// std::runtime_error where that is not a range between constants.
StageRanges ranges_of_stages(const Halide::Internal::Stmt &statement, const std::string &array,
                             const std::string &loop, const std::set<std::string> &used);

// Stages within the loop have their memory so many bytes further on.
Halide::Internal::Stmt move_stages(const Halide::Internal::Stmt &statement, const std::string &array,
                                   const std::string &loop, const StageRanges &all, const StageRanges &moved,
                                   int64_t bytes);

}  // namespace hattn::schedules::cuda
