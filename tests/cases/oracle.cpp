#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor_data.h"

namespace hattn::cases {

namespace {

constexpr double kRoundoff = 0x1p-24;
constexpr double kIntegerRoundoff = 1.0 / 65534.0;  // of a number relative to the largest
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTiny = 0x1p-126;  // weights below this may be flushed to zero

// Index along a dimension that may be broadcast.
int64_t pick(const hattn_tensor &tensor, int dim, int64_t index) {
    return tensor.extent[dim] == 1 ? 0 : index;
}

template<typename T>
T broadcast(const hattn_tensor &tensor, int64_t b, int64_t h, int64_t i, int64_t j) {
    return element<T>(tensor, pick(tensor, 0, b), pick(tensor, 1, h), pick(tensor, 2, i), pick(tensor, 3, j));
}

struct Sequence {
    int64_t q_length, kv_length, offset;
};

Sequence sequence_of(const hattn_attention_args &args, int64_t b) {
    Sequence sequence{};
    sequence.q_length = args.q_lengths ? args.q_lengths[b] : args.q.extent[2];
    sequence.kv_length = args.kv_lengths ? args.kv_lengths[b] : args.k.extent[2];
    sequence.offset = args.causal_offsets ? args.causal_offsets[b] : sequence.kv_length - sequence.q_length;
    return sequence;
}

struct Score {
    double raw = 0.0, capped = 0.0, logit = -kInfinity;
    double raw_error = 0.0, capped_error = 0.0, error = 0.0;
};

double scale_of(const hattn_attention_desc &desc) {
    return std::isnan(desc.scale) ? 1.0 / std::sqrt(static_cast<double>(desc.key_dim))
                                  : static_cast<double>(desc.scale);
}

Score score(const hattn_attention_desc &desc, const hattn_attention_args &args, int64_t b, int64_t h, int64_t i,
            int64_t j, const ScaleRatios &ratios) {
    int64_t kv_head = h / (desc.query_heads / desc.kv_heads);
    double dot = 0.0, magnitude = 0.0, largest = 0.0, of_key = 0.0;
    const float *query = &element<float>(args.q, b, h, i, 0);
    const float *key = &element<float>(args.k, b, kv_head, j, 0);
    for (int64_t d = 0; d < desc.key_dim; ++d) {
        double product = static_cast<double>(query[d]) * static_cast<double>(key[d]);
        dot += product;
        magnitude += std::fabs(product);
        largest = std::max(largest, std::fabs(static_cast<double>(query[d])));
        of_key += std::fabs(static_cast<double>(key[d]));
    }
    double scale = scale_of(desc);
    double root = std::sqrt(static_cast<double>(desc.key_dim));
    Score s;
    s.raw = scale * dot;
    s.raw_error = kRoundoff * ((0.5 * root + 4.0) * std::fabs(scale) * magnitude + 4.0 * std::fabs(s.raw)) +
                  kIntegerRoundoff * std::fabs(scale) * largest * ratios.keys * of_key;
    s.capped = s.raw;
    s.capped_error = s.raw_error;
    if (desc.softcap > 0.0f) {
        double cap = static_cast<double>(desc.softcap);
        s.capped = cap * std::tanh(s.raw / cap);
        s.capped_error += 8.0 * kRoundoff * cap;
    }
    s.logit = s.capped;
    double bias = desc.has_bias ? static_cast<double>(broadcast<float>(args.bias, b, h, i, j)) : 0.0;
    double distance = std::fabs(static_cast<double>(i + sequence_of(args, b).offset - j));
    double alibi = desc.has_alibi ? static_cast<double>(args.alibi_slopes[h]) * distance : 0.0;
    s.logit += bias - alibi;
    s.error = s.capped_error + 2.0 * kRoundoff * (std::fabs(bias) + std::fabs(alibi) + std::fabs(s.logit));
    return s;
}

class Row {
public:
    Row(const hattn_attention_desc &desc, const hattn_attention_args &args, const ScaleRatios &ratios, int64_t b,
        int64_t h, int64_t i)
        : desc_(desc), args_(args), ratios_(ratios), b_(b), h_(h), i_(i), inside_(i < sequence_of(args, b).q_length) {}

    void append_to(Expected &expected) {
        int64_t keys = args_.k.extent[2];
        int64_t kv_length = sequence_of(args_, b_).kv_length;
        bool wants_all = desc_.scores == HATTN_SCORES_RAW || desc_.scores == HATTN_SCORES_CAPPED;
        scores_.assign(static_cast<size_t>(keys), Score{});
        for (int64_t j = 0; inside_ && j < kv_length; ++j) {
            bool visible = sees(desc_, args_, b_, h_, i_, j);
            if (visible || wants_all) {
                scores_[static_cast<size_t>(j)] = score(desc_, args_, b_, h_, i_, j, ratios_);
            }
            if (!visible) {
                scores_[static_cast<size_t>(j)].logit = -kInfinity;
            }
        }
        softmax();
        append_out(expected);
        expected.lse.push_back(lse_);
        expected.lse_bound.push_back(lse_bound_);
        append_scores(expected);
    }

private:
    void softmax() {
        sink_ = desc_.has_sinks && inside_ ? static_cast<double>(args_.sinks[h_]) : -kInfinity;
        double maximum = sink_;
        for (const Score &s : scores_) {
            maximum = s.logit > maximum || std::isnan(s.logit) ? s.logit : maximum;
        }
        weights_.assign(scores_.size(), 0.0);
        relative_error_.assign(scores_.size(), 0.0);
        if (maximum == -kInfinity) {
            return;
        }
        double sum = std::exp(sink_ - maximum);
        for (const Score &s : scores_) {
            sum += std::exp(s.logit - maximum);
        }
        lse_ = maximum + std::log(sum);
        double magnitude = std::fabs(lse_), error = 0.0;
        for (size_t j = 0; j < scores_.size(); ++j) {
            const Score &s = scores_[j];
            if (s.logit == -kInfinity) {
                continue;
            }
            ++visible_;
            weights_[j] = std::exp(s.logit - maximum) / sum;
            relative_error_[j] = weights_[j] > 0.0 ? weight_error(s.error, s.logit) : 0.0;
            error += weights_[j] * relative_error_[j];
            magnitude = std::max(magnitude, weights_[j] > kTiny ? std::fabs(s.logit) : 0.0);
        }
        if (sink_ != -kInfinity) {
            sink_error_ = std::exp(sink_ - lse_) * weight_error(2.0 * kRoundoff * std::fabs(sink_), sink_);
        }
        lse_bound_ = error + sink_error_ + accumulation() + 2.0 * kRoundoff * (magnitude + std::fabs(lse_));
    }

    // Relative error of exp(logit - lse) given the absolute error of the logit.
    double weight_error(double error, double logit) const {
        return std::expm1(error) + kRoundoff * (8.0 + 2.0 * std::fabs(logit - lse_));
    }

    double accumulation() const {
        return kRoundoff * (std::sqrt(static_cast<double>(visible_)) + 8.0);
    }

    void append_out(Expected &expected) const {
        int64_t kv_head = h_ / (desc_.query_heads / desc_.kv_heads);
        auto dim = static_cast<size_t>(desc_.value_dim);
        std::vector<double> out(dim, 0.0), magnitude(dim, 0.0), own_error(dim, 0.0), floor(dim, 0.0);
        double error = sink_error_, largest = 0.0;
        for (double weight : weights_) {
            largest = std::max(largest, weight);
        }
        for (size_t j = 0; j < weights_.size(); ++j) {
            if (scores_[j].logit == -kInfinity) {
                continue;
            }
            const float *value = &element<float>(args_.v, b_, kv_head, static_cast<int64_t>(j), 0);
            error += weights_[j] * relative_error_[j];
            for (size_t d = 0; d < dim; ++d) {
                double size = std::fabs(static_cast<double>(value[d]));
                out[d] += weights_[j] * static_cast<double>(value[d]);
                magnitude[d] += weights_[j] * size;
                own_error[d] += weights_[j] * size * relative_error_[j];
                floor[d] += (kTiny + kIntegerRoundoff * largest * ratios_.values) * size;
            }
        }
        for (size_t d = 0; d < dim; ++d) {
            expected.out.push_back(out[d]);
            expected.out_bound.push_back(own_error[d] + std::fabs(out[d]) * error + accumulation() * magnitude[d] +
                                         floor[d]);
        }
    }

    void append_scores(Expected &expected) const {
        if (desc_.scores == HATTN_SCORES_NONE) {
            return;
        }
        for (size_t j = 0; j < scores_.size(); ++j) {
            const Score &s = scores_[j];
            switch (desc_.scores) {
            case HATTN_SCORES_RAW:
                push(expected, s.raw, s.raw_error);
                break;
            case HATTN_SCORES_CAPPED:
                push(expected, s.capped, s.capped_error);
                break;
            case HATTN_SCORES_MASKED:
                push(expected, s.logit, s.logit == -kInfinity ? 0.0 : s.error);
                break;
            default:
                push(expected, weights_[j], weights_[j] * (relative_error_[j] + std::expm1(lse_bound_)) + kTiny);
            }
        }
    }

    static void push(Expected &expected, double value, double bound) {
        expected.scores.push_back(value);
        expected.scores_bound.push_back(bound);
    }

    const hattn_attention_desc &desc_;
    const hattn_attention_args &args_;
    const ScaleRatios &ratios_;
    int64_t b_, h_, i_;
    bool inside_;
    std::vector<Score> scores_;
    std::vector<double> weights_, relative_error_;
    double sink_ = -kInfinity, sink_error_ = 0.0, lse_ = -kInfinity, lse_bound_ = 0.0;
    int64_t visible_ = 0;
};

}  // namespace

bool sees(const hattn_attention_desc &desc, const hattn_attention_args &args, int64_t b, int64_t h, int64_t i,
          int64_t j) {
    Sequence sequence = sequence_of(args, b);
    if (i >= sequence.q_length || j >= sequence.kv_length) {
        return false;
    }
    int64_t position = i + sequence.offset;
    bool visible = !desc.causal || j <= position;
    visible = visible && (desc.window_left < 0 || j >= position - desc.window_left);
    visible = visible && (desc.window_right < 0 || j <= position + desc.window_right);
    if (visible && desc.has_mask) {
        visible = broadcast<uint8_t>(args.mask, b, h, i, j) != 0;
    }
    if (visible && desc.has_bias) {
        visible = broadcast<float>(args.bias, b, h, i, j) != -std::numeric_limits<float>::infinity();
    }
    return visible;
}

Expected evaluate(const hattn_attention_desc &desc, const hattn_attention_args &args, const ScaleRatios &ratios) {
    Expected expected;
    for (int64_t b = 0; b < args.q.extent[0]; ++b) {
        for (int64_t h = 0; h < desc.query_heads; ++h) {
            for (int64_t i = 0; i < args.q.extent[2]; ++i) {
                Row(desc, args, ratios, b, h, i).append_to(expected);
            }
        }
    }
    return expected;
}

}  // namespace hattn::cases
