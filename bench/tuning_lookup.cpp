// What a tuning database costs: reading it when a context is created, and looking choices up.
// usage: hattn-bench-lookup [FILE]
#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "runtime/kernel_registry.h"
#include "runtime/tuning_database.h"
#include "stopwatch.h"

namespace {

using namespace hattn;

// Seconds per call, of the best of many batches.
template<typename Call>
double seconds_per_call(int calls, Call call) {
    constexpr int kBatches = 50;
    double best = std::numeric_limits<double>::infinity();
    for (int batch = 0; batch < kBatches; ++batch) {
        const bench::Stopwatch watch;
        for (int i = 0; i < calls; ++i) {
            call(i);
        }
        best = std::min(best, watch.seconds() / calls);
    }
    return best;
}

// Keeps the compiler from leaving look-ups out.
const void *volatile sink;

}  // namespace

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "none";
    if (argc > 2 || path[0] == '-') {
        std::fprintf(stderr, "usage: hattn-bench-lookup [FILE]\n");
        return 2;
    }
    sink = open_tuning_database(path).get();  // parses what ships, once
    const double load = seconds_per_call(1, [&](int) { sink = open_tuning_database(path).get(); });
    const auto database = open_tuning_database(path);

    TuningFamily family;
    family.head_exponent = 7;
    family.group_exponent = 2;
    family.target = &best_runnable_target();
    const auto find = [&](const TuningTable &table, int64_t keys) {
        return table.find(family).find(cell_of(1 + keys % 7, keys));
    };
    const double look_up = seconds_per_call(1000, [&](int i) {
        sink = find(database->machine, 1 + i);
        sink = find(database->shipped(), 1 + i);
    });
    std::printf("tuning database %s: %s, %zu entries, %zu shipped\n", path, tuning_state_name(database->state),
                database->machine.size(), database->shipped().size());
    std::printf("load %.3f ms, look-up of family and class in both %.3f us\n", 1e3 * load, 1e6 * look_up);
    return 0;
}
