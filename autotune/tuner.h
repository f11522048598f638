// Finds the best choice for one class of problems: space, ranking by the model, verification, race, verdict.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "machine.h"
#include "shape.h"

namespace hattn::autotune {

struct Request {
    std::vector<Shape> shapes;       // of one class; the winner has to win on all of them together
    std::string algorithm = "auto";  // asked for
    std::string usual = "none";      // the database whose choices are the default
    double seconds = 1.0;            // of measuring
    size_t most_candidates = 8;      // that are timed, the best by the model and the best of each algorithm
    double most_behind = 1.25;       // see RaceOptions
    bool cold = true;                // also with inputs in no cache, where that can matter
    bool invariant = false;          // only choices with the bits of the default's results
    bool portable = false;           // only choices that occupy as many cores as the default, if there are that many
};

// Throws nlohmann::json::exception or std::invalid_argument.
Request read_request(const nlohmann::json &object);

// What the tuner knows of the machine and the library; made once.
struct Bench {
    explicit Bench(int threads);

    nlohmann::json info;  // hattn_info()
    Machine machine;
};

// The class of the request's first shape, as hattn_plan_explain() says it.
nlohmann::json class_of(const Bench &bench, const Request &request);

// The class, the default, every candidate with what became of it, the verdict and an entry for the database; see
// docs/tuning.md. `between` is called between runs and may throw.
nlohmann::ordered_json tune(const Bench &bench, const Request &request, const std::function<void()> &between);

}  // namespace hattn::autotune
