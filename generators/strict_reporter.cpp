#include "strict_reporter.h"

#include <set>
#include <stdexcept>
#include <string_view>

#include "Halide.h"

namespace hattn::generators {

namespace {

class StrictReporter : public Halide::CompileTimeErrorReporter {
public:
    std::set<std::string> warnings;

    void warning(const char *message) override {
        // Instructions for 16-bit numbers are what the generic target does without.
        if (std::string_view(message).find("float16 type operation is emulated") == std::string_view::npos) {
            warnings.insert(message);
        }
    }
    [[noreturn]] void error(const char *message) override {
        throw std::runtime_error(message);
    }
};

StrictReporter &reporter() {
    static StrictReporter reporter;
    return reporter;
}

}  // namespace

void report_strictly() {
    Halide::set_custom_compile_time_error_reporter(&reporter());
}

std::string take_warning() {
    const std::string first = reporter().warnings.empty() ? "" : *reporter().warnings.begin();
    reporter().warnings.clear();
    return first;
}

}  // namespace hattn::generators
