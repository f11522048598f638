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

// What is summed up: all lanes of a vector; each four of them; or the first lanes of all fours, and so on.
enum class Lanes { kAll, kOfFours, kAcrossFours };

// array[index] += sum of the lanes of a vector; or array[index and further on] += sums of four of them.
struct Sum {
    std::string array;
    Expr index, vector;
    int64_t offset = 0;  // of the index from that of the first sum
    Lanes lanes = Lanes::kAll;

    int numbers() const {
        return lanes == Lanes::kAll ? 1 : kShuffledLanes;
    }
    // From vector to vector: numbers of fours are as far apart as there are lanes in one.
    int64_t stride() const {
        return lanes == Lanes::kAcrossFours ? kShuffledLanes : 1;
    }
};

// The vector whose fours lie across what is summed up.
Expr turned_fours(const Expr &value) {
    const Shuffle *turned = value.as<Shuffle>();
    if (!turned || turned->vectors.size() != 1 || !turned->vectors[0].as<Load>() ||
        turned->indices.size() != kShuffledLanes * kShuffledLanes) {
        return {};
    }
    for (int lane = 0; lane < kShuffledLanes * kShuffledLanes; ++lane) {
        if (turned->indices[lane] != lane % kShuffledLanes * kShuffledLanes + lane / kShuffledLanes) {
            return {};
        }
    }
    return turned->vectors[0];
}

std::optional<Sum> sum_of(const Stmt &statement) {
    const Stmt body = without_lets(statement);
    const Store *store = body.as<Store>();
    const Add *add = store && is_const_one(store->predicate) ? store->value.as<Add>() : nullptr;
    const VectorReduce *sum = add ? add->a.as<VectorReduce>() : nullptr;
    const Load *before = add ? add->b.as<Load>() : nullptr;
    if (!sum || !before || sum->op != VectorReduce::Add || before->name != store->name ||
        !equal(before->index, store->index) || loads_from(sum->value, store->name) ||
        loads_from(store->index, store->name)) {
        return {};
    }
    const Ramp *at = store->index.as<Ramp>();
    if (const Expr fours = turned_fours(sum->value); fours.defined() && at && is_const_one(at->stride)) {
        return sum->type == Float(32, kShuffledLanes)
                   ? std::optional(Sum{store->name, at->base, fours, 0, Lanes::kAcrossFours})
                   : std::nullopt;
    }
    const int lanes = sum->value.type().lanes();
    if (!sum->value.as<Load>()) {
        return {};
    }
    if (sum->type == Float(32) && (lanes == 8 || lanes == 16)) {
        return Sum{store->name, store->index, sum->value};
    }
    // Of as many vectors as a four has lanes, which lie in the order that they have then.
    const bool in_fours = at && is_const(at->stride, kShuffledLanes) && at->lanes == kShuffledLanes &&
                          lanes == kShuffledLanes * kShuffledLanes;
    return in_fours && (sum->type == Int(32, at->lanes) || sum->type == Float(32, at->lanes))
               ? std::optional(Sum{store->name, at->base, sum->value, 0, Lanes::kOfFours})
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
Expr sums_of(Vectors vectors, Lanes lanes, int count, NamedValues &names) {
    for (int round = 0; vectors.size() > 1 || vectors.front().type().lanes() > count; ++round) {
        const bool within = lanes != Lanes::kAcrossFours && 1 << round < kShuffledLanes;
        const int block = within ? 1 : kShuffledLanes;
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
    const int count = static_cast<int>(vectors.size()) * sums[0].numbers();
    const Expr found = sums_of(vectors, sums[0].lanes, count, names);
    std::vector<Stmt> stores;
    for (size_t first = 0; first < sums.size();) {
        const int run = sums[0].numbers() > 1 ? count : static_cast<int>(run_from(sums, first));
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
                sum->lanes != sums[0].lanes) {
                break;
            }
            sum->offset = *offset;
            if (sum->numbers() > 1 && sum->offset != static_cast<int64_t>(sums.size()) * sum->stride()) {
                break;
            }
        }
        sums.push_back(*sum);
    }
    if (!sums.empty() && sums[0].numbers() > 1) {
        const size_t most = std::min<size_t>(sums.size(), kShuffledLanes);
        const size_t fewest = sums[0].lanes == Lanes::kAcrossFours ? 1 : kShuffledLanes;
        sums.resize(most < fewest ? 0 : std::bit_floor(most));
        return sums;
    }
    const size_t most = sums.empty() ? 0 : std::min<size_t>(sums.size(), sums[0].vector.type().lanes());
    sums.resize(most < kFewestSums ? 0 : std::bit_floor(most));
    return sums;
}

}  // namespace

// Of one vector, whose lanes LLVM would put in order before it adds them up.
Stmt AdjacentSums::visit(const Store *store) {
    const std::optional<Sum> sum = sum_of(store);
    return sum && sum->lanes == Lanes::kAcrossFours ? store_sums({*sum}) : IRMutator::visit(store);
}

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
