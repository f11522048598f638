// Who takes part in a race: candidates that differ in what the planner makes of them and give right results.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "space.h"
#include "trial.h"
#include "tuner.h"

namespace hattn::autotune {

struct Entrant {
    Candidate candidate;
    std::string plan;                // what the planner makes of it, for each problem
    double predicted_seconds = 0.0;  // of the first problem
    std::string refused;             // why it is not timed; empty if it is
};

// trials[i] belongs to entrants[racing[i]]; entrants[0] is the default.
struct Field {
    std::vector<Entrant> entrants;
    std::vector<Trial> trials;
    std::vector<size_t> racing;
    nlohmann::json usual;  // the default, explained, of the first problem
};

// `between` is called between runs and may throw. Throws std::runtime_error if the default gives wrong results.
Field make_field(const Bench &bench, const Request &request, Problems &problems, const std::function<void()> &between);

// An entry of a database that gives all problems of a class one choice, or the default's if there is none.
nlohmann::ordered_json entry_json(const nlohmann::json &problem_class, const std::optional<Candidate> &choice,
                                  double gain, bool invariant);

}  // namespace hattn::autotune
