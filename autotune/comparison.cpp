#include "comparison.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "race.h"

namespace hattn::autotune {

Comparison read_comparison(const nlohmann::json &object) {
    Comparison wanted;
    wanted.shape = read_shape(object.at("shape"));
    wanted.databases = object.at("databases").get<std::vector<std::string>>();
    wanted.seconds = object.value("seconds", wanted.seconds);
    if (wanted.databases.empty()) {
        throw std::invalid_argument("databases: is empty");
    }
    return wanted;
}

nlohmann::ordered_json compare(const Bench &bench, const Comparison &wanted, const std::function<void()> &between) {
    Problems problems;
    problems.push_back(make_problem(wanted.shape));
    std::vector<Trial> trials;
    for (const std::string &database : wanted.databases) {
        trials.emplace_back(problems, database, bench.machine.threads, HATTN_ALGORITHM_AUTO);
    }
    RaceOptions options;
    options.seconds = wanted.seconds;
    options.most_behind = std::numeric_limits<double>::infinity();
    options.between = between;
    const std::vector<Lap> laps = race(trials, {{0, false}}, options);
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (size_t i = 0; i < trials.size(); ++i) {
        rows.push_back({{"database", wanted.databases[i]},
                        {"plan", trials[i].explain(0)},
                        {"seconds", laps[i].median_seconds(0)},
                        {"speed", std::exp(-laps[i].score())}});
    }
    const Lap &again = laps.back();
    return {{"rows", rows}, {"noise", std::exp(std::abs(again.score()) + again.uncertainty())}};
}

}  // namespace hattn::autotune
