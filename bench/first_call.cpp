// hattn-first-call: how long a fresh process takes to its first result, as JSON. bench/footprint.py runs it.
//
//     hattn-first-call STARTED      when the parent started it, in seconds of CLOCK_MONOTONIC
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "hattn/hattn.hpp"

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

hattn::AttentionDesc prefill(int64_t length) {
    hattn::AttentionDesc desc;
    desc.batch = 1;
    desc.query_heads = 16;
    desc.kv_heads = 8;
    desc.query_length = desc.kv_length = length;
    desc.key_dim = desc.value_dim = 128;
    desc.causal = 1;
    return desc;
}

size_t workspace_bytes(hattn::Context &context, int64_t length, int threads) {
    hattn::AttentionDesc desc = prefill(length);
    desc.threads = threads;
    return hattn::Plan(context, desc).workspace_size();
}

int run(double started) {
    constexpr int64_t kLength = 128;
    const double loaded = now();
    hattn::AttentionDesc desc = prefill(kLength);
    const auto elements = [&](int64_t heads) { return static_cast<size_t>(heads * kLength * desc.key_dim); };
    std::vector<float> q(elements(16), 0.1f), k(elements(8), 0.1f), v(elements(8), 0.1f), out(elements(16));
    hattn::AttentionArgs args;
    args.q = hattn::bhsd(q.data(), {1, 16, kLength, 128});
    args.k = hattn::bhsd(k.data(), {1, 8, kLength, 128});
    args.v = hattn::bhsd(v.data(), {1, 8, kLength, 128});
    args.out = hattn::bhsd(out.data(), {1, 16, kLength, 128});

    const double begin = now();
    hattn::Context context;
    hattn::Plan plan(context, desc);
    hattn::Workspace workspace(plan.workspace_size());
    const double planned = now();
    args.workspace = workspace.data();
    args.workspace_size = workspace.size();
    plan.execute(args);
    const double first = now();
    plan.execute(args);
    const double second = now();
    const double load = loaded - started, plan_time = planned - begin, run_time = first - planned;
    std::printf("{\"seconds\": {\"start and load\": %.9f, \"context, plan, workspace\": %.9f, \"first run\": %.9f, "
                "\"all of it\": %.9f, \"second run, for comparison\": %.9f}, \"workspace_bytes\": %zu}\n",
                load, plan_time, run_time, load + plan_time + run_time, second - first,
                workspace_bytes(context, 4096, 2));
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: hattn-first-call STARTED\n");
        return 2;
    }
    char *end = nullptr;
    const double started = std::strtod(argv[1], &end);
    if (end == argv[1] || *end != '\0') {
        std::fprintf(stderr, "hattn-first-call: STARTED: is '%s', but must be a number of seconds\n", argv[1]);
        return 2;
    }
    try {
        return run(started);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "hattn-first-call: %s\n", error.what());
        return 1;
    }
}
