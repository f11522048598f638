#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hattn::autotune {

namespace {

std::vector<double> ranks(const std::vector<double> &values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
    std::vector<double> result(values.size());
    for (size_t begin = 0; begin < order.size();) {
        size_t end = begin;
        while (end < order.size() && values[order[end]] == values[order[begin]]) {
            ++end;
        }
        for (size_t i = begin; i < end; ++i) {
            result[order[i]] = static_cast<double>(begin + end - 1) / 2.0;
        }
        begin = end;
    }
    return result;
}

// By how much two standard errors have to grow where they are estimated from few values: Student's t at 97.5% over the
// normal distribution's quantile, by the expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5).
double of_few(double degrees_of_freedom) {
    const double f = 1.0 / degrees_of_freedom;
    return 1.0 + f * (1.21 + f * (1.44 + f * 1.30));
}

}  // namespace

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0.0;
    }
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

double uncertainty(const std::vector<double> &values) {
    const double middle = median(values);
    std::vector<double> deviations;
    for (const double value : values) {
        deviations.push_back(std::abs(value - middle));
    }
    // 1.4826: of a normal distribution, to its standard deviation. 1.2533: from the mean's error to the median's.
    constexpr double kToError = 2.0 * 1.4826 * 1.2533;
    const auto count = static_cast<double>(values.size());
    return values.size() < 2 ? 0.0 : kToError * of_few(count - 1.0) * median(deviations) / std::sqrt(count);
}

double rank_correlation(const std::vector<double> &a, const std::vector<double> &b) {
    if (a.size() < 3 || a.size() != b.size()) {
        return 0.0;
    }
    const std::vector<double> x = ranks(a), y = ranks(b);
    const double mean = static_cast<double>(a.size() - 1) / 2.0;
    double xy = 0.0, xx = 0.0, yy = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - mean) * (y[i] - mean);
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
    }
    return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : 0.0;
}

}  // namespace hattn::autotune
