// Into how many splits a key range is cut where nothing says otherwise.
#pragma once

#include <cstdint>

#include "problem.h"

namespace hattn {

// Heads of fewer elements are short: what stands beside products takes more of the time.
inline constexpr int64_t kShortHead = 96;

// Splits have a number of keys, or more where there would be too many of them, and up to eight times as many where
// there are many. Tiles of flash are split where a sequence has few: by its rows and not by its tiles, so that all
// flash kernels split at the same keys.
class UsualSplits {
public:
    explicit UsualSplits(hattn_algorithm algorithm);

    // Keys per split; 0: the range stays whole.
    int64_t keys(const Problem &problem, int64_t query_length, int64_t kv_length) const;

    // Bounds over all sequences of up to so many keys.
    int64_t most(int64_t kv_length) const;     // splits of a unit
    int64_t longest(int64_t kv_length) const;  // keys per split
    // Rows of a unit that is split, which tiles may have more of: of flash, sequences that are cut have few.
    int64_t most_rows(const Problem &problem) const;

private:
    int64_t fewest_keys_ = 0;   // of a split; 0: the algorithm has none
    int64_t keys_of_many_ = 0;  // at most, of a split where there are many
    int64_t most_ = 1;          // over all tiles
    int64_t tile_rows_ = 0;     // 0: each unit is split by itself
};

}  // namespace hattn
