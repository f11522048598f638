#include "compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

namespace hattn::cases {

namespace {

// Error in units of the bound: at most 1 is agreement.
double ratio(double actual, double expected, double bound) {
    if (std::isnan(expected)) {
        return 0.0;
    }
    if (std::isnan(actual) || std::isinf(actual) || std::isinf(expected)) {
        return actual == expected ? 0.0 : std::numeric_limits<double>::infinity();
    }
    double error = std::fabs(actual - expected);
    if (error == 0.0) {
        return 0.0;
    }
    return bound > 0.0 ? error / bound : std::numeric_limits<double>::infinity();
}

struct Mismatch {
    Extents index{};
    double actual = 0.0, expected = 0.0, bound = 0.0, ratio = 0.0;
};

std::ostream &operator<<(std::ostream &text, const Mismatch &mismatch) {
    text << '[' << mismatch.index[0] << ", " << mismatch.index[1] << ", " << mismatch.index[2] << ", "
         << mismatch.index[3] << "] is " << mismatch.actual << ", expected " << mismatch.expected << " +- "
         << mismatch.bound;
    return text;
}

}  // namespace

std::string difference(const std::string &name, const hattn_tensor &actual, const std::vector<double> &expected,
                       const std::vector<double> &bound) {
    if (static_cast<size_t>(element_count(actual)) != expected.size()) {
        return name + ": the oracle has " + std::to_string(expected.size()) + " elements, the output " +
               std::to_string(element_count(actual)) + "\n";
    }
    size_t flat = 0, count = 0;
    Mismatch first, worst;
    for_each_index(extents_of(actual), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        Mismatch here{{i0, i1, i2, i3}, element<float>(actual, i0, i1, i2, i3), expected[flat], bound[flat], 0.0};
        here.ratio = ratio(here.actual, here.expected, here.bound);
        ++flat;
        if (here.ratio <= 1.0) {
            return;
        }
        first = count == 0 ? here : first;
        worst = here.ratio > worst.ratio ? here : worst;
        ++count;
    });
    if (count == 0) {
        return "";
    }
    std::ostringstream text;
    text.precision(9);
    text << name << ": " << count << " of " << expected.size() << " elements are off; first " << first << "; worst "
         << worst << '\n';
    return text.str();
}

std::string difference(const Problem &problem, const Expected &expected) {
    std::string text;
    bool exact = problem.spec.tolerance == Tolerance::kExact;
    std::vector<double> zero(exact ? expected.out.size() : 0, 0.0);
    text += difference("out", problem.out.view, expected.out, exact ? zero : expected.out_bound);
    if (problem.lse.given()) {
        text += difference("lse", problem.lse.view, expected.lse, expected.lse_bound);
    }
    if (problem.scores.given()) {
        text += difference("scores", problem.scores.view, expected.scores, expected.scores_bound);
    }
    if (!problem.output_gaps_hold()) {
        text += "memory between the elements of an output was written\n";
    }
    return text;
}

double worst_ratio(const hattn_tensor &actual, const std::vector<double> &expected, const std::vector<double> &bound) {
    size_t flat = 0;
    double worst = 0.0;
    for_each_index(extents_of(actual), [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
        double here = ratio(element<float>(actual, i0, i1, i2, i3), expected[flat], bound[flat]);
        worst = std::isfinite(here) ? std::max(worst, here) : worst;
        ++flat;
    });
    return worst;
}

}  // namespace hattn::cases
