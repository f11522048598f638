#include "overlapped_bands.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "band_parts.h"
#include "schedules/statements.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// Passes of a loop, from one to before another.
Stmt some_passes(const Stmt &statement, const Expr &first, const Expr &end) {
    const For *loop = statement.as<For>();
    return For::make(loop->name, simplify(loop->min + first), end - first, ForType::Serial, Partition::Never,
                     DeviceAPI::None, loop->body);
}

// A loop whose passes are dealt to rooms, all or some of them.
struct Rider {
    Stmt loop;
    Expr first, count;
};

// In place of the rooms of a tile of sums.
class FilledRooms : public IRMutator {
public:
    explicit FilledRooms(std::vector<Rider> riders) : riders_(std::move(riders)) {}

private:
    using IRMutator::visit;

    // The loop over blocks of elements, right around the rooms.
    Stmt visit(const For *loop) override {
        const int rooms = Contents(loop->body).rooms;
        if (rooms == 0) {
            return IRMutator::visit(loop);
        }
        NamedValues names;
        const Expr all_rooms = names(max(loop->extent, 1) * rooms);
        std::vector<Expr> counts, shares;
        constexpr int kFraction = 16;
        std::vector<Stmt> alone;
        for (const Rider &rider : riders_) {
            counts.push_back(names(rider.count));
            shares.push_back(names((counts.back() << kFraction) / all_rooms + 1));
            alone.push_back(some_passes(rider.loop, rider.first, rider.first + counts.back()));
        }
        const Expr step = Variable::make(Int(32), loop->name) - loop->min;
        int room = 0;
        fill_ = [&] {
            ++room;
            std::vector<Stmt> filled;
            for (size_t i = 0; i < riders_.size(); ++i) {
                const auto pass = [&](int of_room) {
                    return riders_[i].first + min(((step * rooms + of_room) * shares[i]) >> kFraction, counts[i]);
                };
                filled.push_back(some_passes(riders_[i].loop, pass(room - 1), pass(room)));
            }
            return Block::make(filled);
        };
        const Stmt filled = IRMutator::visit(loop);
        return names.around(Block::make(filled, IfThenElse::make(loop->extent <= 0, Block::make(alone))));
    }

    Stmt visit(const Evaluate *evaluate) override {
        return is_room(evaluate->value.as<Call>()) ? fill_() : IRMutator::visit(evaluate);
    }

    const std::vector<Rider> riders_;
    std::function<Stmt()> fill_;
};

// Products, a tile of sums after the other, with loops that are dealt to all of them.
Stmt with_riders(const Part &products, const std::vector<Rider> &riders) {
    const For *tiles = products.loop();
    NamedValues names;
    std::vector<Rider> of_tile;
    for (const Rider &rider : riders) {
        const Expr first = names(rider.first), count = names(rider.count);
        const Expr share = names((count + tiles->extent - 1) / max(tiles->extent, 1));
        const Expr begin = min((Variable::make(Int(32), tiles->name) - tiles->min) * share, count);
        of_tile.push_back({rider.loop, first + begin, min(share, count - begin)});
    }
    const Stmt body = FilledRooms(of_tile).mutate(tiles->body);
    return only_if(products.condition, names.around(For::make(tiles->name, tiles->min, tiles->extent, tiles->for_type,
                                                              tiles->partition_policy, tiles->device_api, body)));
}

// Of weights, what has scores beside it, in eighths. More, if the state stands beside weighted values too.
constexpr int kBesideScores = 4, kBesideScoresWithState = 5;

Stmt overlapped(const For *loop, const BandStages &stages) {
    const auto extent = as_const_int(loop->extent);
    if (!extent) {
        cannot_overlap("the number of bands is not known", loop);
    }
    if (*extent < 2) {
        cannot_overlap("there is but one band", loop);
    }
    const Band band(loop, stages);
    NamedValues names, counts;
    const Expr bands = counts(stages.filled), last = bands - 1;
    const std::string name = unique_name("overlapped_band");
    const Expr i = Variable::make(Int(32), name);
    // Their conditions say that there is such a chunk, which the loop over chunks says too.
    const Expr weighed = clamp(i - 1, 0, last);
    const auto seen = band.seen_passes(weighed);
    const Expr first = names(seen.first), end = names(seen.second);
    const bool in_place = stages.adds_in_place;
    const Expr between = names(first + (end - first) * (in_place ? kBesideScores : kBesideScoresWithState) / 8);
    const auto weights = [&](const Expr &wanted, const Expr &from, const Expr &to) {
        return Rider{band.of(band.weights, weighed).statement, from, select(wanted, to - from, 0)};
    };
    const Expr of_last = i >= 1 && i <= last + 1;
    const Stmt scores = with_riders(band.of(band.scores, i), {weights(i > 0, first, between)});
    std::vector<Rider> beside_values = {weights(of_last, between, end)};
    Stmt rescaled = Evaluate::make(0), last_state = rescaled;
    if (in_place) {
        rescaled = band.statement_of(band.rescaled, i - 2);
    } else {
        const Stmt state = band.of(band.state, clamp(i - 3, 0, last)).statement;
        beside_values.push_back({state, 0, select(i > 2, band.state.loop()->extent, 0)});
        last_state = band.statement_of(band.state, last);
    }
    const Stmt values = with_riders(band.of(band.values, i - 2), beside_values);
    const auto alone = [&](const Expr &from, const Expr &to) {
        const Part own = band.of(band.weights, i - 1);
        return only_if(own.condition, some_passes(own.statement, from, to));
    };
    const Stmt in_loop = Block::make({
        IfThenElse::make(i <= last, scores),
        IfThenElse::make(i == last + 1, alone(first, between)),
        IfThenElse::make(i == 1, alone(between, end)),
        IfThenElse::make(i >= 2, Block::make(rescaled, values)),
        IfThenElse::make(of_last, band.all_of(band.sums, i - 1)),
        IfThenElse::make(i <= last, Block::make(band.all_of(band.maxima, i), band.statement_of(band.zeroed, i))),
    });
    const Stmt over_bands =
        For::make(name, 0, bands + 2, ForType::Serial, Partition::Never, DeviceAPI::None, names.around(in_loop));
    return counts.around(band.allocated(Block::make(over_bands, last_state)));
}

}  // namespace

Stmt OverlappedBands::visit(const For *loop) {
    if (!loop->name.ends_with(std::string(".") + kBandLoop)) {
        return IRMutator::visit(loop);
    }
    const bool overlaps = Contents(loop->body).rooms > 0 && !is_profiled(loop->body);
    return overlaps ? mutate(overlapped(loop, stages_)) : IRMutator::visit(loop);
}

Stmt OverlappedBands::visit(const Evaluate *evaluate) {
    return is_room(evaluate->value.as<Call>()) ? Evaluate::make(0) : IRMutator::visit(evaluate);
}

}  // namespace hattn::schedules::x86
