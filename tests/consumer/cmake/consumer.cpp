// An application in C++: a small attention through hattn/hattn.hpp, checked against loops, and an error caught.
#include <hattn/hattn.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int kQueryHeads = 4, kKvHeads = 2, kQueries = 3, kKeys = 5, kDim = 6;  // batch is 1

std::vector<float> random_values(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), [&] { return uniform(generator); });
    return values;
}

// q and out are [kQueries][kQueryHeads][kDim] (BSHD), k and v are [kKvHeads][kKeys][kDim] (BHSD).
struct Problem {
    std::vector<float> q = random_values(kQueries * kQueryHeads * kDim, 1);
    std::vector<float> k = random_values(kKvHeads * kKeys * kDim, 2);
    std::vector<float> v = random_values(kKvHeads * kKeys * kDim, 3);
    std::vector<float> out = std::vector<float>(q.size());
};

hattn::AttentionDesc describe() {
    hattn::AttentionDesc desc;
    desc.batch = 1;
    desc.query_heads = kQueryHeads;
    desc.kv_heads = kKvHeads;
    desc.query_length = kQueries;
    desc.kv_length = kKeys;
    desc.key_dim = desc.value_dim = kDim;
    return desc;
}

hattn::AttentionArgs arguments(Problem &problem) {
    hattn::AttentionArgs args;
    args.q = hattn::bshd(problem.q.data(), {1, kQueryHeads, kQueries, kDim});
    args.k = hattn::bhsd(problem.k.data(), {1, kKvHeads, kKeys, kDim});
    args.v = hattn::bhsd(problem.v.data(), {1, kKvHeads, kKeys, kDim});
    args.out = hattn::bshd(problem.out.data(), {1, kQueryHeads, kQueries, kDim});
    return args;
}

// A NaN is the largest error, which std::max would leave out.
double larger(double worst, double error) {
    return error <= worst ? worst : error;
}

double row_error(const Problem &problem, int head, int row) {
    const float *q = &problem.q[static_cast<std::size_t>((row * kQueryHeads + head) * kDim)];
    const float *out = &problem.out[static_cast<std::size_t>((row * kQueryHeads + head) * kDim)];
    const auto first_key = static_cast<std::size_t>(head / (kQueryHeads / kKvHeads) * kKeys * kDim);
    const float *k = &problem.k[first_key], *v = &problem.v[first_key];
    double weights[kKeys], sum = 0, worst = 0;
    for (int j = 0; j < kKeys; j++) {
        double score = 0;
        for (int d = 0; d < kDim; d++) {
            score += static_cast<double>(q[d]) * k[j * kDim + d];
        }
        sum += weights[j] = std::exp(score / std::sqrt(kDim));
    }
    for (int d = 0; d < kDim; d++) {
        double value = 0;
        for (int j = 0; j < kKeys; j++) {
            value += weights[j] / sum * v[j * kDim + d];
        }
        worst = larger(worst, std::fabs(value - out[d]));
    }
    return worst;
}

double worst_error(const Problem &problem) {
    double worst = 0;
    for (int head = 0; head < kQueryHeads; head++) {
        for (int row = 0; row < kQueries; row++) {
            worst = larger(worst, row_error(problem, head, row));
        }
    }
    return worst;
}

bool refuses_a_wrong_head_count(hattn::Context &context) {
    Problem problem;
    hattn::AttentionDesc desc = describe();
    desc.kv_heads = 3;
    try {
        context.attention(desc, arguments(problem));
    } catch (const hattn::Error &error) {
        std::printf("refused as expected: %s\n", error.what());
        return error.status() == HATTN_INVALID_ARGUMENT;
    }
    return false;
}

}  // namespace

int main() {
    hattn::Context context;
    Problem problem;
    hattn::AttentionArgs args = arguments(problem);
    const hattn::Plan plan(context, describe());
    const hattn::Workspace workspace(plan.workspace_size());
    args.workspace = workspace.data();
    args.workspace_size = workspace.size();
    plan.execute(args);

    const double worst = worst_error(problem);
    std::printf("hattn %s from C++: largest error %.2g\n", hattn::version().c_str(), worst);
    return worst < 1e-5 && refuses_a_wrong_head_count(context) ? 0 : 1;
}
