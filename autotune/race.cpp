#include "race.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cold_caches.h"
#include "statistics.h"
#include "stopwatch.h"

namespace hattn::autotune {

namespace {

constexpr double kTurn = 1e-3;  // seconds; what is faster runs several times in a turn
constexpr int kMostRuns = 4;
constexpr double kWarming = 5e-3;  // seconds; what takes longer hardly notices what ran before it
constexpr int kRoundsBeforeDrops = 2;  // of which one may have been disturbed: then by twice as much
constexpr int kRunsAfterCold = 3;  // until keys and values are in the caches again that hold them

// What a trial does when its turn comes.
struct Turn {
    int runs;    // that are timed; the fastest counts
    bool warms;  // runs once before that
};

class Race {
public:
    Race(std::vector<Trial> &trials, const std::vector<Setting> &settings, const RaceOptions &options)
        : trials_(trials),
          settings_(settings),
          options_(options),
          cold_caches_(options.cache_bytes),
          laps_(trials.size() + 1) {
        for (Lap &lap : laps_) {
            lap.ratios.resize(settings.size());
            lap.seconds.resize(settings.size());
        }
    }

    std::vector<Lap> run() {
        warm_up();
        bench::Stopwatch watch;
        int asks_at = kUsualRounds;  // and whenever rounds have doubled: the more looks, the more winners by chance
        for (int round = 0; round < kMostRounds; ++round) {
            if (round >= kLeastRounds && watch.seconds() > options_.seconds) {
                break;
            }
            if (round == asks_at) {
                if (!options_.is_open || !options_.is_open(laps_)) {
                    break;
                }
                asks_at *= 2;
            }
            for (size_t setting = 0; setting < settings_.size(); ++setting) {
                run_setting(setting, round);
            }
            if (round + 1 >= kRoundsBeforeDrops) {
                drop_the_slow(std::log(options_.most_behind) * (round + 1 == kRoundsBeforeDrops ? 2.0 : 1.0));
            }
        }
        return std::move(laps_);
    }

private:
    void warm_up() {
        for (const Setting &setting : settings_) {
            const double seconds = trials_.front().seconds(setting.problem, 2);
            const int fitting = std::clamp(static_cast<int>(kTurn / std::max(seconds, 1e-9)), 1, kMostRuns);
            turns_.push_back({setting.cold ? 1 : fitting, !setting.cold && seconds < kWarming});
        }
    }

    double time(size_t trial, size_t setting) {
        if (options_.between) {
            options_.between();
        }
        const size_t problem = settings_[setting].problem;
        if (settings_[setting].cold) {
            cold_caches_.evict(trials_[trial].problem(problem));
        } else if (turns_[setting].warms) {
            trials_[trial].execute(problem);  // whatever ran before left other things in the caches
        }
        return trials_[trial].seconds(problem, turns_[setting].runs);
    }

    // The default first, and once more after the others. Every other round the others run backwards. Ratios are to the
    // mean of both times of the default, so that a machine that becomes slower favours nobody.
    void run_setting(size_t setting, int round) {
        const Setting &before = settings_[(setting + settings_.size() - 1) % settings_.size()];
        if (turns_[setting].warms && before.cold) {
            trials_.front().seconds(settings_[setting].problem, kRunsAfterCold);
        }
        const size_t count = trials_.size();
        std::vector<std::pair<size_t, double>> times = {{0, time(0, setting)}};
        for (size_t i = 1; i < count; ++i) {
            const size_t trial = round % 2 == 0 ? i : count - i;
            if (!laps_[trial].dropped) {
                times.emplace_back(trial, time(trial, setting));
            }
        }
        const double first = times.front().second, last = time(0, setting);
        for (const auto &[trial, seconds] : times) {
            note(trial, setting, seconds, trial == 0 ? seconds : std::sqrt(first * last));
        }
        note(count, setting, last, first);
    }

    void note(size_t lap, size_t setting, double seconds, double usual) {
        laps_[lap].seconds[setting].push_back(seconds);
        laps_[lap].ratios[setting].push_back(std::log(seconds / usual));
    }

    void drop_the_slow(double most_behind) {
        double best = 0.0;  // the default's
        for (size_t trial = 1; trial < trials_.size(); ++trial) {
            best = laps_[trial].dropped ? best : std::min(best, laps_[trial].score());
        }
        for (size_t trial = 1; trial < trials_.size(); ++trial) {
            Lap &lap = laps_[trial];
            lap.dropped = lap.dropped || lap.score() > best + most_behind;
        }
    }

    std::vector<Trial> &trials_;
    const std::vector<Setting> &settings_;
    const RaceOptions &options_;
    ColdCaches cold_caches_;
    std::vector<Lap> laps_;
    std::vector<Turn> turns_;  // by setting
};

}  // namespace

double Lap::score() const {
    double sum = 0.0;
    for (const std::vector<double> &setting : ratios) {
        sum += median(setting);
    }
    return sum / static_cast<double>(ratios.size());
}

double Lap::uncertainty() const {
    double squares = 0.0;
    for (const std::vector<double> &setting : ratios) {
        const double one = autotune::uncertainty(setting);
        squares += one * one;
    }
    return std::sqrt(squares) / static_cast<double>(ratios.size());
}

double Lap::worst_ratio() const {
    double worst = -1e9;
    for (const std::vector<double> &setting : ratios) {
        worst = std::max(worst, median(setting));
    }
    return worst;
}

double Lap::median_seconds(size_t setting) const {
    return median(seconds[setting]);
}

std::vector<Lap> race(std::vector<Trial> &trials, const std::vector<Setting> &settings, const RaceOptions &options) {
    return Race(trials, settings, options).run();
}

}  // namespace hattn::autotune
