// Ring attention: a sequence too long for one machine, its queries and keys spread over MPI ranks. Every rank attends
// from its queries to the keys it holds while it passes these on to the next rank, and merges what it gets into the
// state it has. After as many steps as there are ranks, every query has seen every key. Rank 0 then checks the result
// against attention over the whole sequence in one place.
//
//     mpirun -n 4 hattn-example-ring-attention [TOKENS [HEADS [HEAD_DIM [QUERIES]]]]     (65536 4 64 256)
//
// The queries are the last QUERIES tokens: fewer than TOKENS is a chunk of a long prompt.
// Source: Liu, Zaharia and Abbeel, Ring Attention with Blockwise Transformers (2023).
#include <hattn/hattn.hpp>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ring.h"
#include "sequence_data.h"

namespace {

constexpr double kTolerance = 1e-5;

// Attention over some of the keys: out [token][head][dim] and lse [token][head].
struct State {
    std::vector<float> out, lse;

    State(const Shape &shape, std::int64_t queries)
        : out(static_cast<std::size_t>(queries * shape.token_floats())),
          lse(static_cast<std::size_t>(queries * shape.heads)) {}

    hattn_tensor out_view(const Shape &shape, std::int64_t queries) {
        return token_view(out.data(), shape, queries);
    }
    hattn_tensor lse_view(const Shape &shape, std::int64_t queries) {
        return hattn::bshd(lse.data(), {1, shape.heads, queries, 1});
    }
};

// Causal attention of a block of the queries to a block of the keys, wherever both are in the sequence.
void attend(hattn::Context &context, const Shape &shape, const std::vector<float> &q, Block queries,
            const std::vector<float> &shard, Block keys, State &state) {
    hattn::AttentionDesc desc;
    desc.batch = 1;
    desc.query_heads = desc.kv_heads = shape.heads;
    desc.query_length = queries.count;
    desc.kv_length = keys.count;
    desc.key_dim = desc.value_dim = shape.dim;
    desc.causal = 1;
    // The position of the first query, counted from the first key of the shard.
    const auto offset = static_cast<std::int32_t>(shape.tokens - shape.queries + queries.first - keys.first);
    hattn::AttentionArgs args;
    args.q = token_view(q.data(), shape, queries.count);
    args.k = token_view(shard.data(), shape, keys.count);
    args.v = token_view(shard.data() + keys.count * shape.token_floats(), shape, keys.count);
    args.out = state.out_view(shape, queries.count);
    args.lse = state.lse_view(shape, queries.count);
    args.causal_offsets = &offset;
    context.attention(desc, args);
}

// q: the rank's share of the queries; held: its shard of keys and values, which goes on a journey.
State attend_around_the_ring(hattn::Context &context, Ring &ring, const Shape &shape, const std::vector<float> &q,
                             std::vector<float> held) {
    const Block queries = share(shape.queries, ring.rank(), ring.size());
    State state(shape, queries.count), part = state, merged = state;
    std::vector<float> coming;
    for (int step = 0; step < ring.size(); step++) {
        const Block keys = share(shape.tokens, (ring.rank() + ring.size() - step) % ring.size(), ring.size());
        const bool last = step + 1 == ring.size();
        if (!last) {
            const int before = (ring.rank() + 2 * ring.size() - step - 1) % ring.size();
            coming.resize(static_cast<std::size_t>(2 * share(shape.tokens, before, ring.size()).count) *
                          static_cast<std::size_t>(shape.token_floats()));
            ring.pass_on(held, coming);
        }
        attend(context, shape, q, queries, held, keys, step == 0 ? state : part);
        if (step > 0) {
            const auto outs = {state.out_view(shape, queries.count), part.out_view(shape, queries.count)};
            const auto lses = {state.lse_view(shape, queries.count), part.lse_view(shape, queries.count)};
            context.merge_states(outs, lses, merged.out_view(shape, queries.count),
                                 merged.lse_view(shape, queries.count));
            std::swap(state, merged);
        }
        if (!last) {
            ring.finish();
            std::swap(held, coming);
        }
    }
    return state;
}

// What all ranks have, in order, on rank 0.
std::vector<float> gather(const Ring &ring, const std::vector<float> &mine, std::int64_t total,
                          std::int64_t token_floats) {
    std::vector<int> counts, starts;
    for (int rank = 0; rank < ring.size(); rank++) {
        const Block block = share(total, rank, ring.size());
        counts.push_back(message_size(static_cast<std::size_t>(block.count * token_floats)));
        starts.push_back(message_size(static_cast<std::size_t>(block.first * token_floats)));
    }
    std::vector<float> all(static_cast<std::size_t>(ring.rank() == 0 ? total * token_floats : 0));
    MPI_Gatherv(mine.data(), message_size(mine.size()), MPI_FLOAT, all.data(), counts.data(), starts.data(), MPI_FLOAT,
                0, MPI_COMM_WORLD);
    return all;
}

double largest_difference(const std::vector<float> &a, const std::vector<float> &b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); i++) {
        const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
        largest = difference <= largest ? largest : difference;  // NaN counts
    }
    return largest;
}

// As many threads as each rank of this machine can have for itself.
std::int32_t threads_per_rank() {
    MPI_Comm machine;
    int ranks = 1;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &ranks);
    MPI_Comm_free(&machine);
    return std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()) / ranks);
}

bool run(const Shape &shape) {
    Ring ring;
    hattn::ContextDesc context_desc;
    context_desc.threads = threads_per_rank();
    hattn::Context context(context_desc);
    const std::vector<float> q = make_queries(shape, share(shape.queries, ring.rank(), ring.size()));
    std::vector<float> shard = make_shard(shape, share(shape.tokens, ring.rank(), ring.size()));

    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    const State state = attend_around_the_ring(context, ring, shape, q, std::move(shard));
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = MPI_Wtime() - start;

    const std::vector<float> out = gather(ring, state.out, shape.queries, shape.token_floats());
    const std::vector<float> lse = gather(ring, state.lse, shape.queries, shape.heads);
    int good = 1;
    if (ring.rank() == 0) {
        const Block all_queries = {0, shape.queries}, all_keys = {0, shape.tokens};
        State whole(shape, shape.queries);
        attend(context, shape, make_queries(shape, all_queries), all_queries, make_shard(shape, all_keys), all_keys,
               whole);
        const double out_error = largest_difference(out, whole.out), lse_error = largest_difference(lse, whole.lse);
        good = out_error < kTolerance && lse_error < kTolerance;
        std::printf("%lld queries, %lld keys, %lld heads of %lld on %d ranks with %d threads each: %.3f s\n"
                    "largest difference from one machine: out %.2g, lse %.2g\n",
                    static_cast<long long>(shape.queries), static_cast<long long>(shape.tokens),
                    static_cast<long long>(shape.heads), static_cast<long long>(shape.dim), ring.size(),
                    context_desc.threads, seconds, out_error, lse_error);
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return good != 0;
}

std::int64_t positive(const char *name, const char *text) {
    char *end = nullptr;
    const long long value = std::strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 1 || value > (1 << 29)) {
        throw std::invalid_argument(std::string(name) + ": is \"" + text + "\", but must be from 1 to 2^29");
    }
    return value;
}

Shape read_shape(int argc, char **argv) {
    const auto argument = [&](int index, const char *name, std::int64_t otherwise) {
        return index < argc ? positive(name, argv[index]) : otherwise;
    };
    Shape shape{};
    shape.tokens = argument(1, "TOKENS", 65536);
    shape.heads = argument(2, "HEADS", 4);
    shape.dim = argument(3, "HEAD_DIM", 64);
    shape.queries = argument(4, "QUERIES", std::min<std::int64_t>(shape.tokens, 256));
    if (argc > 5 || shape.queries > shape.tokens) {
        throw std::invalid_argument(argc > 5 ? "more than 4 arguments"
                                             : "QUERIES: is " + std::to_string(shape.queries) +
                                                   ", but there are only " + std::to_string(shape.tokens) + " tokens");
    }
    return shape;
}

}  // namespace

int main(int argc, char **argv) {
    int threads_provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads_provided);
    try {
        const bool good = run(read_shape(argc, argv));
        MPI_Finalize();
        return good ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "hattn-example-ring-attention: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return 1;
}
