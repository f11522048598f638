#include "entrants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "kernel_tiles.h"
#include "verify.h"

namespace hattn::autotune {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kOracleBudget = 2e6;        // multiply-adds per problem
constexpr double kLeastTaskSeconds = 20e-6;  // more tasks than one per so much work help no machine

// Whether a target has kernels over a storage that this CPU runs.
bool runs_storage(const json &info, const std::string &target, const char *storage) {
    const json &kernels = info.at("kernels");
    return std::any_of(kernels.begin(), kernels.end(), [&](const json &row) {
        return row.at("target") == target && row.at("storage") == storage && row.at("runnable");
    });
}

// To which kernels of a target may round weights: where they multiply 16-bit numbers as they are.
hattn_dtype weight_type_of(const json &info, const std::string &target, hattn_dtype dtype) {
    const auto &devices = info.at("devices");
    const auto device =
        std::find_if(devices.begin(), devices.end(), [&](const json &row) { return row.at("name") == target; });
    if (device != devices.end()) {
        const json &rows = device->at("kernels");
        const bool on_tensor_cores = std::any_of(rows.begin(), rows.end(), [&](const json &row) {
            return row.at("matrix_type") == (dtype == HATTN_FLOAT16 ? "float16" : "bfloat16");
        });
        const bool is_half = dtype == HATTN_FLOAT16 || dtype == HATTN_BFLOAT16;
        return is_half && on_tensor_cores ? dtype : HATTN_FLOAT32;
    }
    return dtype == HATTN_BFLOAT16 && runs_storage(info, target, "bfloat16") ? HATTN_BFLOAT16 : HATTN_FLOAT32;
}

std::string plan_of(const Trial &trial, const Problems &problems) {
    std::string text;
    for (size_t i = 0; i < problems.size(); ++i) {
        const json plan = trial.explain(i);
        const int64_t split = plan.at("split_keys");
        const int64_t cut = split < problems[i]->twin.spec.kv_length ? split : 0;
        text += plan.at("kernel").get<std::string>() + "/heads" + plan.at("heads_per_tile").dump() + "/split" +
                std::to_string(cut) + " ";
    }
    return text;
}

Candidate usual_candidate(const json &explanation) {
    const std::string algorithm = explanation.at("algorithm");
    // Where flash splits is left to the library's rule.
    const int64_t split = algorithm == "flash" ? 0 : explanation.at("split_keys").get<int64_t>();
    return {algorithm, explanation.at("tile").get<Tile>(), split, 0};
}

// With `invariant` the planner takes no candidate whose sums may differ from the default's.
ordered_json database_json(const Bench &bench, const std::vector<json> &classes, const Candidate &candidate,
                           bool invariant) {
    ordered_json entries = ordered_json::array();
    for (const json &problem_class : classes) {
        entries.push_back(entry_json(problem_class, candidate, 1.0, invariant));
    }
    return {{"format", "hattn-tuning"},
            {"version", 1},
            {"stamp", bench.info.at("tuning_database").at("stamp")},
            {"entries", entries}};
}

// The candidates in the model's order, cut to the request's number, of each algorithm the best one at least.
std::vector<Entrant> ranked(const Model &model, const Request &request, std::vector<Candidate> space) {
    std::vector<Entrant> all;
    for (Candidate &candidate : space) {
        const double seconds = model.predicted_seconds(candidate);
        all.push_back({std::move(candidate), "", seconds, ""});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Entrant &a, const Entrant &b) { return a.predicted_seconds < b.predicted_seconds; });
    std::vector<Entrant> kept;
    for (Entrant &entrant : all) {
        const bool is_first = std::none_of(kept.begin(), kept.end(), [&](const Entrant &other) {
            return other.candidate.algorithm == entrant.candidate.algorithm;
        });
        if (kept.size() < request.most_candidates || is_first) {
            kept.push_back(std::move(entrant));
        }
    }
    return kept;
}

// Holds results against the oracle and, where asked for, against the default's bits.
class Judge {
public:
    // weight_type: to which candidates may round weights. integers, two_terms: what they may multiply.
    Judge(Problems &problems, hattn_dtype weight_type, cases::IntegerProducts integers, bool two_terms, bool invariant,
          Trial &usual, const std::function<void()> &between)
        : problems_(problems), invariant_(invariant), between_(between) {
        for (const auto &problem : problems) {
            verifications_.emplace_back(problem->twin, kOracleBudget,
                                        problem->rounding(weight_type, integers, two_terms));
            between();
        }
        if (const std::string why = objection(usual); !why.empty()) {
            throw std::runtime_error("the default, " + usual.explain(0).at("kernel").get<std::string>() + ", " + why);
        }
    }

    // Empty, or why the trial may not take part.
    std::string objection(Trial &trial) {
        for (size_t i = 0; i < problems_.size(); ++i) {
            between_();
            problems_[i]->fill_outputs();
            try {
                trial.execute(i);
            } catch (const Error &error) {
                return std::string("fails: ") + error.what();  // as where a driver takes not all that Halide makes
            }
            std::vector<float> out = outputs(i);
            if (const std::string wrong = verifications_[i].check(problems_[i]->twin); !wrong.empty()) {
                return "is wrong: " + wrong;
            }
            if (invariant_ && bits_.size() == i) {
                bits_.push_back(std::move(out));
            } else if (invariant_ && std::memcmp(out.data(), bits_[i].data(), out.size() * sizeof(float)) != 0) {
                return "other bits than the default";
            }
        }
        return "";
    }

private:
    // Brings them into the twin, too.
    std::vector<float> outputs(size_t problem) {
        problems_[problem]->read_output();
        return cases::dense_floats(problems_[problem]->twin.out.view);
    }

    Problems &problems_;
    bool invariant_;
    const std::function<void()> &between_;
    std::vector<bench::Verification> verifications_;
    std::vector<std::vector<float>> bits_;  // of the default, the first that is looked at
};

// Whether a machine with many cores would have less use for them than with the default.
bool occupies_fewer_cores(const Trial &trial, Trial &usual, const Problems &problems) {
    for (size_t i = 0; i < problems.size(); ++i) {
        const double useful = std::ceil(usual.seconds(i, 2) / kLeastTaskSeconds);
        const double wanted = std::min(usual.explain(i).at("tasks").get<double>(), useful);
        if (trial.explain(i).at("tasks").get<double>() < wanted) {
            return true;
        }
    }
    return false;
}

}  // namespace

ordered_json entry_json(const json &problem_class, const std::optional<Candidate> &choice, double gain,
                        bool invariant) {
    return {{"class", problem_class},
            {"choice", choice ? ordered_json(json(*choice)) : ordered_json()},
            {"gain", std::round(1000.0 * gain) / 1000.0},
            {"invariant", invariant}};
}

Field make_field(const Bench &bench, const Request &request, Problems &problems, const std::function<void()> &between) {
    const int threads = bench.machine.threads;
    const hattn_algorithm algorithm = algorithm_of(request.algorithm);
    Field field;
    field.trials.emplace_back(problems, request.usual, threads, algorithm);
    field.usual = field.trials.front().explain(0);
    std::vector<json> classes;
    for (size_t i = 0; i < problems.size(); ++i) {
        classes.push_back(field.trials.front().explain(i).at("class"));
        if (classes.back().is_null()) {
            throw std::invalid_argument("kv_length: is " + std::to_string(request.shapes[i].kv_length) +
                                        ", but must be of a class, of which the last one has 65536");
        }
    }
    const Model model(bench, request, field.usual.at("target"));
    const Candidate usual = usual_candidate(field.usual);
    field.entrants.push_back({usual, plan_of(field.trials.front(), problems), model.predicted_seconds(usual), ""});
    field.racing.push_back(0);

    const std::string target = field.usual.at("target");
    const hattn_dtype dtype = request.shapes.front().dtype;
    Judge judge(problems, weight_type_of(bench.info, target, dtype), cases::integer_products(target, dtype, dtype),
                runs_storage(bench.info, target, "halves_matrices"), request.invariant, field.trials.front(), between);
    std::vector<Candidate> space = space_of(request.shapes.front(), kernels_for(bench, request, problems));
    if (request.invariant) {
        space = invariant_space(space, usual);
    }
    for (Entrant &entrant : ranked(model, request, std::move(space))) {
        const TemporaryFile database(database_json(bench, classes, entrant.candidate, request.invariant).dump());
        Trial trial(problems, database.path(), threads, algorithm);
        entrant.plan = plan_of(trial, problems);
        const bool is_known = std::any_of(field.entrants.begin(), field.entrants.end(),
                                          [&](const Entrant &other) { return other.plan == entrant.plan; });
        if (is_known) {
            continue;
        }
        entrant.refused = request.portable && occupies_fewer_cores(trial, field.trials.front(), problems)
                              ? "too few tasks for machines of more cores"
                              : judge.objection(trial);
        if (entrant.refused.empty()) {
            field.racing.push_back(field.entrants.size());
            field.trials.push_back(std::move(trial));
        }
        field.entrants.push_back(std::move(entrant));
    }
    return field;
}

}  // namespace hattn::autotune
