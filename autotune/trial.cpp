#include "trial.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include "stopwatch.h"

namespace hattn::autotune {

Context make_context(const std::string &database, int threads) {
    hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
    desc.threads = threads;
    desc.tuning_database = database.c_str();
    return Context(desc);
}

hattn_algorithm algorithm_of(const std::string &name) {
    static const std::map<std::string, hattn_algorithm, std::less<>> kAlgorithms = {
        {"auto", HATTN_ALGORITHM_AUTO},
        {"naive", HATTN_ALGORITHM_NAIVE},
        {"flash", HATTN_ALGORITHM_FLASH},
        {"split_kv", HATTN_ALGORITHM_SPLIT_KV},
        {"unfused", HATTN_ALGORITHM_UNFUSED}};
    const auto found = kAlgorithms.find(name);
    if (found == kAlgorithms.end()) {
        throw std::invalid_argument("unknown algorithm '" + name + "'");
    }
    return found->second;
}

TemporaryFile::TemporaryFile(const std::string &text)
    : path_((std::filesystem::temp_directory_path() / "hattn-tune-XXXXXX").string()) {
    const int file = mkstemp(path_.data());
    const bool written = file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (file >= 0) {
        close(file);
    }
    if (!written) {
        std::filesystem::remove(path_);
        throw std::runtime_error(path_ + ": cannot be written");
    }
}

TemporaryFile::~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
}

namespace {

// Of the calling thread, while it was running: what other processes took is not counted.
double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Trial::Trial(Problems &problems, const std::string &database, int threads, hattn_algorithm algorithm)
    : problems_(problems),
      is_serial_(threads == 1 && problems.front()->desc.device == HATTN_CPU),
      context_(make_context(database, threads)) {
    for (const auto &problem : problems) {
        hattn_attention_desc desc = problem->desc;
        desc.algorithm = algorithm;
        Plan plan(context_, desc);
        Workspace workspace(plan.workspace_size());
        prepared_.push_back({std::move(plan), std::move(workspace), problem->device_args()});
        prepared_.back().args.workspace = prepared_.back().workspace.data();
        prepared_.back().args.workspace_size = prepared_.back().workspace.size();
    }
}

void Trial::execute(size_t problem) {
    Prepared &prepared = prepared_[problem];
    prepared.args.device_workspace_size = prepared.plan.device_workspace_size();
    prepared.args.device_workspace = problems_[problem]->device_workspace(prepared.args.device_workspace_size);
    prepared.plan.execute(prepared.args);
}

double Trial::seconds(size_t problem, int runs) {
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < runs; ++run) {
        const double begin = is_serial_ ? thread_seconds() : 0.0;
        const bench::Stopwatch watch;
        execute(problem);
        best = std::min(best, is_serial_ ? thread_seconds() - begin : watch.seconds());
    }
    return best;
}

nlohmann::json Trial::explain(size_t problem) const {
    return nlohmann::json::parse(prepared_[problem].plan.explain());
}

}  // namespace hattn::autotune
