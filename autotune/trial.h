// A choice at work: plans whose planner was told to take it, by a tuning database, as any user's would be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "hattn/hattn.hpp"
#include "tuned_problem.h"

namespace hattn::autotune {

// A file that is gone with the object.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string &text);  // throws std::runtime_error
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile &operator=(const TemporaryFile &) = delete;
    const std::string &path() const {
        return path_;
    }

private:
    std::string path_;
};

// database: as hattn_context_desc::tuning_database.
Context make_context(const std::string &database, int threads);

// HATTN_ALGORITHM_AUTO for names that are none.
hattn_algorithm algorithm_of(const std::string &name);

// Problems of one class that share choices. Outputs are overwritten by every trial.
using Problems = std::vector<std::unique_ptr<TunedProblem>>;

class Trial {
public:
    // algorithm: asked for.
    Trial(Problems &problems, const std::string &database, int threads, hattn_algorithm algorithm);

    const cases::TypedProblem &problem(size_t index) const {
        return *problems_[index];
    }
    void execute(size_t problem);
    // Of the fastest of so many runs, on a device with all tensors there: passed on the wall, or with one thread spent
    // on its core, which other processes on a busy machine do not add to.
    double seconds(size_t problem, int runs);
    nlohmann::json explain(size_t problem) const;

private:
    struct Prepared {
        Plan plan;
        Workspace workspace;
        hattn_attention_args args;
    };

    Problems &problems_;
    bool is_serial_;
    Context context_;
    std::vector<Prepared> prepared_;
};

}  // namespace hattn::autotune
