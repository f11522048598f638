// How fast plans are under several tuning databases, beside each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tuner.h"

namespace hattn::autotune {

struct Comparison {
    Shape shape;
    std::vector<std::string> databases;  // as hattn_context_desc::tuning_database; the first one is the default
    double seconds = 1.0;
};

// Throws nlohmann::json::exception or std::invalid_argument.
Comparison read_comparison(const nlohmann::json &object);

// A row per database: its plan, its seconds, its speed over the first one's; and the noise.
nlohmann::ordered_json compare(const Bench &bench, const Comparison &wanted, const std::function<void()> &between);

}  // namespace hattn::autotune
