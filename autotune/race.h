// Measures trials against each other: rounds in which each runs in turn beside the default, so that what disturbs the
// machine disturbs all of them.
#pragma once

#include <functional>
#include <vector>

#include "trial.h"

namespace hattn::autotune {

// A condition that trials run under.
struct Setting {
    size_t problem;
    bool cold;  // inputs are in no cache
};

inline constexpr int kLeastRounds = 3, kUsualRounds = 40, kMostRounds = 400;

// Of one trial. Ratios are logarithms of its time over the mean of the default's two in the same round; of the
// default's second run, over its first.
struct Lap {
    std::vector<std::vector<double>> ratios, seconds;  // [setting][round]
    bool dropped = false;

    double score() const;        // mean over settings of the median ratios
    double uncertainty() const;  // of the score
    double worst_ratio() const;  // of all settings, the largest median
    double median_seconds(size_t setting) const;
};

struct RaceOptions {
    double seconds = 1.0;           // in all; at least kLeastRounds rounds are run
    double cache_bytes = 0.0;       // that are taken to be in caches
    double most_behind = 1.25;  // a trial so many times slower than the best is dropped; after two rounds: twice over
    std::function<void()> between;  // called between runs; may throw to end the race
    // Asked after kUsualRounds, and after twice as many each time: whether what race() would return leaves something
    // open, for which it goes on to kMostRounds, if there is time. Null: nothing.
    std::function<bool(const std::vector<Lap> &)> is_open;
};

// trials[0] is the default. A second run of it per round measures what ratios are worth: result[trials.size()].
std::vector<Lap> race(std::vector<Trial> &trials, const std::vector<Setting> &settings, const RaceOptions &options);

}  // namespace hattn::autotune
