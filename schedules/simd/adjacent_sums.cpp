#include "adjacent_sums.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "schedules/statements.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

using Vectors = std::vector<Expr>;

constexpr int kFewestSums = 4, kMostSums = 16;
constexpr int kShuffledLanes = 4;  // of 32 bits, within which a shuffle moves single numbers

// array[index] += sum of the lanes of a vector; or array[index and so many further on] += sums of each four of them.
struct Sum {
    std::string array;
    Expr index, vector;
    int64_t offset = 0;  // of the index from that of the first sum
    int fours = 0;       // of lanes; 0: all lanes have one sum
};

std::optional<Sum> sum_of(const Stmt &statement) {
    const Stmt body = without_lets(statement);
    const Store *store = body.as<Store>();
    const Add *add = store && is_const_one(store->predicate) ? store->value.as<Add>() : nullptr;
    const VectorReduce *sum = add ? add->a.as<VectorReduce>() : nullptr;
    const Load *before = add ? add->b.as<Load>() : nullptr;
    if (!sum || !before || sum->op != VectorReduce::Add || before->name != store->name ||
        !equal(before->index, store->index) || !sum->value.as<Load>()) {
        return {};
    }
    const int lanes = sum->value.type().lanes();
    if (sum->type == Float(32) && (lanes == 8 || lanes == 16)) {
        return Sum{store->name, store->index, sum->value};
    }
    // Of as many vectors as a four has lanes, which lie in the order that they have then.
    const Ramp *fours = store->index.as<Ramp>();
    const bool in_fours = fours && is_const(fours->stride, kShuffledLanes) && fours->lanes * kShuffledLanes == lanes;
    return in_fours && (sum->type == Int(32, fours->lanes) || sum->type == Float(32, fours->lanes))
               ? std::optional(Sum{store->name, fours->base, sum->value, 0, fours->lanes})
               : std::nullopt;
}

// The even, or the odd, blocks of one or two vectors: numbers within each four of them, or fours.
Expr every_other(const Vectors &vectors, int block, int odd) {
    const int lanes = vectors.front().type().lanes(), count = static_cast<int>(vectors.size());
    const int within = block == 1 ? kShuffledLanes : lanes;
    std::vector<int> chosen;
    for (int first = 0; first < lanes; first += within) {
        for (int vector = 0; vector < count; ++vector) {
            for (int lane = 0; lane < within; ++lane) {
                if (lane / block % 2 == odd) {
                    chosen.push_back(vector * lanes + first + lane);
                }
            }
        }
    }
    return Shuffle::make(vectors, chosen);
}

// One vector, of as many lanes as there are sums.
Expr sums_of(Vectors vectors, int count, NamedValues &names) {
    for (int round = 0; vectors.size() > 1 || vectors.front().type().lanes() > count; ++round) {
        const int block = 1 << round < kShuffledLanes ? 1 : kShuffledLanes;
        Vectors joined;
        for (size_t i = 0; i < vectors.size(); i += 2) {
            const Vectors pair(vectors.begin() + i, vectors.begin() + std::min(i + 2, vectors.size()));
            joined.push_back(names(names(every_other(pair, block, 0)) + names(every_other(pair, block, 1))));
        }
        vectors = std::move(joined);
    }
    return vectors.front();
}

// As many sums side by side in memory as there are from one on.
size_t run_from(const std::vector<Sum> &sums, size_t first) {
    size_t run = 1;
    while (first + run < sums.size() && sums[first + run].offset == sums[first].offset + static_cast<int64_t>(run)) {
        ++run;
    }
    return run;
}

Stmt store_sums(std::vector<Sum> sums) {
    std::ranges::sort(sums, {}, &Sum::offset);
    NamedValues names;
    Vectors vectors;
    std::ranges::transform(sums, std::back_inserter(vectors), [&](const Sum &sum) { return names(sum.vector); });
    const int count = static_cast<int>(vectors.size()) * std::max(sums[0].fours, 1);
    const Expr found = sums_of(vectors, count, names);
    std::vector<Stmt> stores;
    for (size_t first = 0; first < sums.size();) {
        const int run = sums[0].fours > 0 ? count : static_cast<int>(run_from(sums, first));
        const Expr index = run == 1 ? sums[first].index : Ramp::make(sums[first].index, 1, run);
        const Expr part = Shuffle::make_slice(found, static_cast<int>(first), 1, run);
        const Expr before = Load::make(part.type(), sums[first].array, index, {}, {}, const_true(run), {});
        stores.push_back(Store::make(sums[first].array, part + before, index, {}, const_true(run), {}));
        first += run;
    }
    return names.around(Block::make(stores));
}

// The most that can be added up at once of the sums that a sequence of statements starts with.
std::vector<Sum> sums_at(const std::vector<Stmt> &statements, size_t first) {
    std::vector<Sum> sums;
    for (size_t at = first; at < statements.size() && sums.size() < kMostSums; ++at) {
        std::optional<Sum> sum = sum_of(statements[at]);
        if (!sum) {
            break;
        }
        if (!sums.empty()) {
            const auto offset = as_const_int(simplify(sum->index - sums[0].index));
            if (!offset || sum->array != sums[0].array || sum->vector.type() != sums[0].vector.type() ||
                sum->fours != sums[0].fours) {
                break;
            }
            sum->offset = *offset;
            if (sum->fours > 0 && sum->offset != static_cast<int64_t>(sums.size())) {
                break;
            }
        }
        sums.push_back(*sum);
    }
    if (!sums.empty() && sums[0].fours > 0) {
        sums.resize(sums.size() < kShuffledLanes ? 0 : kShuffledLanes);
        return sums;
    }
    const size_t most = sums.empty() ? 0 : std::min<size_t>(sums.size(), sums[0].vector.type().lanes());
    sums.resize(most < kFewestSums ? 0 : std::bit_floor(most));
    return sums;
}

}  // namespace

Stmt AdjacentSums::visit(const Block *block) {
    const std::vector<Stmt> statements = statements_of(block);
    std::vector<Stmt> mutated;
    for (size_t first = 0; first < statements.size();) {
        const std::vector<Sum> sums = sums_at(statements, first);
        mutated.push_back(sums.empty() ? mutate(statements[first]) : store_sums(sums));
        first += std::max<size_t>(sums.size(), 1);
    }
    return Block::make(mutated);
}

}  // namespace hattn::schedules::simd
