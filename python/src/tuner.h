// The tuner of autotune/ for the Python layer. Requests and results are JSON texts, see docs/tuning.md.
#pragma once

#include <memory>
#include <string>

namespace hattn::autotune {
struct Bench;
}

namespace hattn_python {

// What hattn_info() says of a tuning database, if it were the one in use.
std::string tuning_database(const std::string &path);

class Tuner {
public:
    // threads: 0 for one per core. Looks at the machine's limits for some 100 ms.
    explicit Tuner(int threads);
    ~Tuner();

    std::string machine() const;
    // The class of a request's first shape.
    std::string problem_class(const std::string &request) const;
    // These with the GIL released; signals are looked after between runs, so that Ctrl-C raises KeyboardInterrupt.
    std::string tune(const std::string &request) const;
    std::string compare(const std::string &request) const;

private:
    std::unique_ptr<hattn::autotune::Bench> bench_;
};

}  // namespace hattn_python
