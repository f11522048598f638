#include "tuner.h"

#include <nanobind/nanobind.h>

#include "autotune/comparison.h"
#include "autotune/trial.h"
#include "autotune/tuner.h"
#include "bench/stopwatch.h"
#include "released_gil.h"

namespace hattn_python {

namespace {

namespace nb = nanobind;

struct Interrupted {};

// Between runs that may take microseconds, so not every time.
class Signals {
public:
    void look() {
        constexpr double kEvery = 0.05;  // seconds
        if (watch_.seconds() < kEvery)
            return;
        watch_ = {};
        nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0)
            throw Interrupted{};
    }

private:
    hattn::bench::Stopwatch watch_;
};

// The text of what measure(between) returns.
template<typename Measure>
std::string measure(const Measure &measure) {
    try {
        const ReleasedGil released;
        Signals signals;
        return measure([&signals] { signals.look(); }).dump();
    } catch (const Interrupted &) {
        throw nb::python_error();
    }
}

}  // namespace

std::string tuning_database(const std::string &path) {
    return nlohmann::json::parse(hattn::autotune::make_context(path, 1).info()).at("tuning_database").dump();
}

Tuner::Tuner(int threads) {
    const ReleasedGil released;
    bench_ = std::make_unique<hattn::autotune::Bench>(threads);
}

Tuner::~Tuner() = default;

std::string Tuner::machine() const {
    return hattn::autotune::machine_json(bench_->machine).dump();
}

std::string Tuner::problem_class(const std::string &request) const {
    return class_of(*bench_, hattn::autotune::read_request(nlohmann::json::parse(request))).dump();
}

std::string Tuner::tune(const std::string &request) const {
    return measure([&](const auto &between) {
        const auto wanted = hattn::autotune::read_request(nlohmann::json::parse(request));
        return hattn::autotune::tune(*bench_, wanted, between);
    });
}

std::string Tuner::compare(const std::string &request) const {
    return measure([&](const auto &between) {
        const auto wanted = hattn::autotune::read_comparison(nlohmann::json::parse(request));
        return hattn::autotune::compare(*bench_, wanted, between);
    });
}

}  // namespace hattn_python
