// Prefill and decode with a key-value cache, from C++: a prompt of four sequences of different lengths goes in at once,
// then one token per sequence and step. The last step is checked against attention over the whole sequence.
//
//     cmake -S examples -B build/examples -Dhattn_ROOT=PREFIX && cmake --build build/examples
//     build/examples/hattn-example-decode
#include <hattn/hattn.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 4, kQueryHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr std::int64_t kPromptLength = 200, kSteps = 32, kCapacity = kPromptLength + kSteps;
constexpr std::array<std::int32_t, kBatch> kPromptLengths = {200, 150, 17, 1};

// Token-major arrays, [sequence][token][head][dim]: what the projections of a transformer layer produce.
struct Layer {
    std::vector<float> q, k, v;
};

std::vector<float> random_values(std::int64_t heads, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(kBatch * kCapacity * heads * kHeadDim));
    std::generate(values.begin(), values.end(), [&] { return normal(generator); });
    return values;
}

// Rows [first, first + count) of every sequence, as [B, H, count, D].
hattn_tensor tokens(const std::vector<float> &data, std::int64_t heads, std::int64_t first, std::int64_t count) {
    const std::int64_t token = heads * kHeadDim;
    return hattn::view(data.data() + first * token, {kBatch, heads, count, kHeadDim},
                       {kCapacity * token, kHeadDim, token, 1});
}

hattn::AttentionDesc describe(std::int64_t queries) {
    hattn::AttentionDesc desc;
    desc.batch = kBatch;
    desc.query_heads = kQueryHeads;
    desc.kv_heads = kKvHeads;
    desc.query_length = queries;
    desc.kv_length = kCapacity;
    desc.key_dim = desc.value_dim = kHeadDim;
    desc.causal = 1;
    return desc;
}

hattn::KvCache make_cache(hattn::Context &context) {
    hattn::KvCacheDesc desc;
    desc.batch = kBatch;
    desc.kv_heads = kKvHeads;
    desc.capacity = kCapacity;
    desc.key_dim = kHeadDim;
    return hattn::KvCache(context, desc);
}

// Sequence b's prompt is tokens 0 to kPromptLengths[b]; out gets one row per prompt token.
void prefill(hattn::KvCache &cache, const Layer &layer, std::vector<float> &out) {
    cache.append(tokens(layer.k, kKvHeads, 0, kPromptLength), tokens(layer.v, kKvHeads, 0, kPromptLength),
                 kPromptLengths.data());
    hattn::AttentionArgs args;
    args.q = tokens(layer.q, kQueryHeads, 0, kPromptLength);
    args.out = hattn::bhsd(out.data(), {kBatch, kQueryHeads, kPromptLength, kHeadDim});
    args.q_lengths = kPromptLengths.data();
    cache.attend(describe(kPromptLength), args);
}

// Appends token kPromptLength + step to every sequence and attends to all before it: out is [B, Hq, 1, D].
void decode(hattn::KvCache &cache, const Layer &layer, std::int64_t step, std::vector<float> &out) {
    const std::int64_t token = kPromptLength + step;
    cache.append(tokens(layer.k, kKvHeads, token, 1), tokens(layer.v, kKvHeads, token, 1));
    hattn::AttentionArgs args;
    args.q = tokens(layer.q, kQueryHeads, token, 1);
    args.out = hattn::bhsd(out.data(), {kBatch, kQueryHeads, 1, kHeadDim});
    cache.attend(describe(1), args);
}

// The largest difference between the last decoded row of sequence 0, whose keys lie together in the arrays, and
// attention over all its tokens without a cache.
double check_last_row(hattn::Context &context, const Layer &layer, const std::vector<float> &decoded) {
    std::vector<float> whole(static_cast<std::size_t>(kQueryHeads * kHeadDim));
    hattn::AttentionDesc desc = describe(1);
    desc.batch = 1;
    hattn::AttentionArgs args;
    args.q = tokens(layer.q, kQueryHeads, kCapacity - 1, 1);
    args.k = tokens(layer.k, kKvHeads, 0, kCapacity);
    args.v = tokens(layer.v, kKvHeads, 0, kCapacity);
    args.q.extent[0] = args.k.extent[0] = args.v.extent[0] = 1;
    args.out = hattn::bhsd(whole.data(), {1, kQueryHeads, 1, kHeadDim});
    context.attention(desc, args);

    double worst = 0;
    for (std::size_t i = 0; i < whole.size(); i++) {
        const double error = std::fabs(static_cast<double>(whole[i]) - decoded[i]);
        worst = error <= worst ? worst : error;  // a NaN stays
    }
    return worst;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run() {
    hattn::Context context;
    hattn::KvCache cache = make_cache(context);
    const Layer layer = {random_values(kQueryHeads, 1), random_values(kKvHeads, 2), random_values(kKvHeads, 3)};
    std::vector<float> prompt_out(static_cast<std::size_t>(kBatch * kQueryHeads * kPromptLength * kHeadDim));
    std::vector<float> token_out(static_cast<std::size_t>(kBatch * kQueryHeads * kHeadDim));

    auto start = std::chrono::steady_clock::now();
    prefill(cache, layer, prompt_out);
    const double prefill_seconds = seconds_since(start);

    start = std::chrono::steady_clock::now();
    for (std::int64_t step = 0; step < kSteps; step++) {
        decode(cache, layer, step, token_out);
    }
    const double decode_seconds = seconds_since(start);

    std::printf("prefill of %zu sequences: %.2f ms; decode: %.3f ms per step; keys held:", kPromptLengths.size(),
                1e3 * prefill_seconds, 1e3 * decode_seconds / kSteps);
    for (const std::int32_t length : cache.lengths()) {
        std::printf(" %d", length);
    }
    const double difference = check_last_row(context, layer, token_out);
    std::printf("\nlargest difference from attention without a cache: %.2g\n", difference);
    return difference < 1e-5 ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const hattn::Error &error) {
        std::fprintf(stderr, "%s: %s\n", hattn_status_name(error.status()), error.what());
        return 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
