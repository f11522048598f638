// Attention states to be merged, and what they are merged to.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "compare.h"
#include "handles.h"
#include "input_data.h"
#include "problem.h"
#include "random.h"
#include "tensor_data.h"

namespace hattn::test {

// States of [B, H, S, D] and room for the merged one.
struct States {
    States(int32_t count, const cases::Extents &extents, uint64_t seed,
           const std::array<int, 4> &order = {0, 1, 2, 3}) {
        const cases::Extents rows = {extents[0], extents[1], extents[2], 1};
        cases::Random random(seed);
        for (int32_t n = 0; n < count; ++n) {
            outs.push_back(cases::make_tensor(HATTN_FLOAT32, extents, order));
            lses.push_back(cases::make_tensor(HATTN_FLOAT32, rows, order));
            cases::fill_normal(outs.back().view, random.bits());
            cases::fill_normal(lses.back().view, random.bits());
        }
        out = cases::make_tensor(HATTN_FLOAT32, extents, order);
        lse = cases::make_tensor(HATTN_FLOAT32, rows, order);
        clear();
    }

    void clear() {
        cases::fill_bytes(out, cases::Problem::kOutputFill);
        cases::fill_bytes(lse, cases::Problem::kOutputFill);
    }

    bool untouched() const {
        return cases::all_bytes_hold(out, cases::Problem::kOutputFill) &&
               cases::all_bytes_hold(lse, cases::Problem::kOutputFill);
    }

    Outcome merge(hattn_context *context) {
        std::vector<hattn_tensor> out_views, lse_views;
        for (size_t n = 0; n < outs.size(); ++n) {
            out_views.push_back(outs[n].view);
            lse_views.push_back(lses[n].view);
        }
        return outcome_of(hattn_merge_states(context, static_cast<int32_t>(outs.size()), out_views.data(),
                                             lse_views.data(), &out.view, &lse.view),
                          context);
    }

    // In double precision; the bound is that of a softmax over the states (oracle.h).
    cases::Expected expected() const {
        cases::Expected result;
        cases::for_each_index(cases::extents_of(lse.view),
                              [&](int64_t b, int64_t h, int64_t s, int64_t) { append(result, b, h, s); });
        return result;
    }

    std::vector<cases::TensorData> outs, lses;
    cases::TensorData out, lse;

private:
    void append(cases::Expected &result, int64_t b, int64_t h, int64_t s) const {
        constexpr double kRoundoff = 0x1p-24;
        double maximum = -std::numeric_limits<double>::infinity(), sum = 0.0;
        for (const cases::TensorData &state : lses) {
            maximum = std::max(maximum, static_cast<double>(cases::element<float>(state.view, b, h, s, 0)));
        }
        for (const cases::TensorData &state : lses) {
            sum += std::isinf(maximum)
                       ? 0.0
                       : std::exp(static_cast<double>(cases::element<float>(state.view, b, h, s, 0)) - maximum);
        }
        double total = maximum + std::log(sum);
        double relative = kRoundoff * (32.0 + 8.0 * std::fabs(total));
        result.lse.push_back(total);
        result.lse_bound.push_back(relative);
        for (int64_t d = 0; d < out.view.extent[3]; ++d) {
            double value = 0.0, magnitude = 0.0;
            for (size_t n = 0; n < outs.size(); ++n) {
                double weight = std::exp(static_cast<double>(cases::element<float>(lses[n].view, b, h, s, 0)) - total);
                if (weight > 0.0) {
                    double term = weight * static_cast<double>(cases::element<float>(outs[n].view, b, h, s, d));
                    value += term;
                    magnitude += std::fabs(term);
                }
            }
            result.out.push_back(value);
            result.out_bound.push_back(2.0 * relative * (magnitude + std::fabs(value)));
        }
    }
};

}  // namespace hattn::test
