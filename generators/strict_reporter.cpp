#include "strict_reporter.h"

#include <algorithm>
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
        // Instructions for 16-bit numbers are what the generic target does without; a loop over the lines of a row has
        // one pass in what is made for rows of one line.
        constexpr std::string_view kExpected[] = {"float16 type operation is emulated",
                                                  "Unrolling a for loop of extent 1: "};
        const auto says = [&](std::string_view text) { return std::string_view(message).find(text) != text.npos; };
        if (std::ranges::none_of(kExpected, says)) {
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
