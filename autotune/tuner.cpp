#include "tuner.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "entrants.h"
#include "race.h"
#include "statistics.h"
#include "work.h"

namespace hattn::autotune {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kLeastGain = 1.02;    // less is not worth another choice
constexpr double kMostLoss = 0.98;     // of a winner, under any setting
constexpr double kColdSeconds = 2e-3;  // what takes longer evicts its own data, or hardly notices

// Each problem with warm caches and, if it is short enough for that to matter, with cold ones.
std::vector<Setting> settings_of(const Request &request, Field &field, const std::function<void()> &between) {
    std::vector<Setting> settings;
    for (size_t i = 0; i < request.shapes.size(); ++i) {
        between();
        settings.push_back({i, false});
        if (request.cold && request.shapes[i].device == HATTN_CPU &&
            field.trials.front().seconds(i, 2) < kColdSeconds) {
            settings.push_back({i, true});
        }
    }
    return settings;
}

ordered_json times_json(const Lap &lap, const std::vector<Setting> &settings) {
    ordered_json times = ordered_json::array();
    for (size_t i = 0; i < settings.size(); ++i) {
        times.push_back({{"shape", settings[i].problem},
                         {"caches", settings[i].cold ? "cold" : "warm"},
                         {"seconds", lap.median_seconds(i)},
                         {"rounds", lap.seconds[i].size()}});
    }
    return times;
}

// What a race says about its trials.
struct Verdict {
    double noise = 0.0;     // of ratios, as a logarithm
    size_t fastest = 0;     // trial, of those that may take the default's place if any may; 0 is the default
    bool replaces = false;  // whether it does
};

Verdict judge(const std::vector<Lap> &laps) {
    const size_t trials = laps.size() - 1;
    const Lap &again = laps.back();
    Verdict verdict;
    verdict.noise = std::abs(again.score()) + again.uncertainty();
    const auto may_replace = [&](const Lap &lap) {
        return lap.score() + lap.uncertainty() + verdict.noise < 0.0 && lap.score() < -std::log(kLeastGain) &&
               lap.worst_ratio() < -std::log(kMostLoss);
    };
    const auto is_faster = [&](size_t trial, size_t than) {
        return laps[trial].score() < (than == 0 ? 0.0 : laps[than].score());
    };
    size_t fastest = 0, winner = 0;
    for (size_t trial = 1; trial < trials; ++trial) {
        if (laps[trial].dropped) {
            continue;
        }
        fastest = is_faster(trial, fastest) ? trial : fastest;
        winner = is_faster(trial, winner) && may_replace(laps[trial]) ? trial : winner;
    }
    // One that loses where another does not may be faster than it by the mean.
    verdict.fastest = winner > 0 ? winner : fastest;
    verdict.replaces = winner > 0;
    return verdict;
}

// Whether the default stays for want of certainty alone: more rounds may tell.
bool is_open(const std::vector<Lap> &laps) {
    const auto could_replace = [](const Lap &lap) {
        return !lap.dropped && lap.score() - lap.uncertainty() < -std::log(kLeastGain) &&
               lap.worst_ratio() < -std::log(kMostLoss);
    };
    return !judge(laps).replaces && std::any_of(laps.begin() + 1, laps.end() - 1, could_replace);
}

ordered_json entrants_json(const Field &field, const std::vector<Lap> &laps, const std::vector<Setting> &settings) {
    ordered_json list = ordered_json::array();
    size_t trial = 0;
    for (size_t i = 0; i < field.entrants.size(); ++i) {
        const Entrant &entrant = field.entrants[i];
        ordered_json row = {{"choice", json(entrant.candidate)},
                            {"plan", entrant.plan},
                            {"predicted_seconds", entrant.predicted_seconds},
                            {"refused", entrant.refused}};
        if (entrant.refused.empty()) {
            const Lap &lap = laps[trial++];
            row["speed"] = std::exp(-lap.score());
            row["dropped"] = lap.dropped;
            row["times"] = times_json(lap, settings);
        }
        list.push_back(std::move(row));
    }
    return list;
}

// How well the model ranked what was timed: rank correlation, and the place it gave to the fastest. By ratios to the
// default in the same rounds, since not all trials ran in all of them.
ordered_json model_json(const Field &field, const std::vector<Lap> &laps) {
    std::vector<double> predicted, measured;
    for (size_t trial = 0; trial < field.trials.size(); ++trial) {
        predicted.push_back(field.entrants[field.racing[trial]].predicted_seconds);
        measured.push_back(laps[trial].score());
    }
    const auto fastest = static_cast<size_t>(std::min_element(measured.begin(), measured.end()) - measured.begin());
    const auto better =
        std::count_if(predicted.begin(), predicted.end(), [&](double seconds) { return seconds < predicted[fastest]; });
    return {{"rank_correlation", rank_correlation(predicted, measured)},
            {"place_of_fastest", better + 1},
            {"candidates", predicted.size()}};
}

ordered_json work_json(const Problems &problems, const Request &request) {
    ordered_json list = ordered_json::array();
    for (size_t i = 0; i < problems.size(); ++i) {
        const cases::Case &spec = problems[i]->twin.spec;
        const double share_of_float = request.shapes[i].bytes_per_element() / sizeof(float);
        list.push_back({{"flops", bench::visible_flops(spec)}, {"bytes", share_of_float * bench::visible_bytes(spec)}});
    }
    return list;
}

}  // namespace

Request read_request(const json &object) {
    Request request;
    for (const json &shape : object.at("shapes")) {
        request.shapes.push_back(read_shape(shape));
    }
    if (request.shapes.empty()) {
        throw std::invalid_argument("shapes: is empty");
    }
    request.algorithm = object.value("algorithm", request.algorithm);
    request.usual = object.value("usual", request.usual);
    request.seconds = object.value("seconds", request.seconds);
    request.most_candidates = object.value("most_candidates", request.most_candidates);
    request.most_behind = object.value("most_behind", request.most_behind);
    request.cold = object.value("cold", request.cold);
    request.portable = object.value("portable", request.portable);
    request.invariant = object.value("invariant", request.invariant);
    return request;
}

Bench::Bench(int threads)
    : info(json::parse(make_context("none", threads).info())), machine(measure_machine(info.at("threads"))) {}

json class_of(const Bench &bench, const Request &request) {
    Context context = make_context(request.usual, bench.machine.threads);
    hattn_attention_desc desc = desc_of(request.shapes.front());
    desc.algorithm = algorithm_of(request.algorithm);
    return json::parse(Plan(context, desc).explain()).at("class");
}

ordered_json tune(const Bench &bench, const Request &request, const std::function<void()> &between) {
    Problems problems;
    for (const Shape &shape : request.shapes) {
        between();
        problems.push_back(make_problem(shape));
    }
    Field field = make_field(bench, request, problems, between);
    const std::vector<Setting> settings = settings_of(request, field, between);
    const RaceOptions options{request.seconds, bench.machine.cache_bytes, request.most_behind, between, is_open};
    const std::vector<Lap> laps = race(field.trials, settings, options);
    const Verdict verdict = judge(laps);

    ordered_json shapes = ordered_json::array();
    for (const Shape &shape : request.shapes) {
        shapes.push_back(shape_json(shape));
    }
    const double gain = verdict.replaces ? std::exp(-laps[verdict.fastest].score()) : 1.0;
    std::optional<Candidate> choice;
    if (verdict.replaces) {
        choice = field.entrants[field.racing[verdict.fastest]].candidate;
    }
    return {{"shapes", shapes},
            {"work", work_json(problems, request)},
            {"threads", bench.machine.threads},
            {"candidates", entrants_json(field, laps, settings)},
            {"fastest", field.racing[verdict.fastest]},
            {"replaces_default", verdict.replaces},
            {"noise", std::exp(verdict.noise)},
            {"model", model_json(field, laps)},
            {"entry", entry_json(field.usual.at("class"), choice, gain, request.invariant)}};
}

}  // namespace hattn::autotune
