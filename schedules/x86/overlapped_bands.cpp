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

// Of weights, what has scores beside it, in eighths: the state stands beside weighted values too.
constexpr int kBesideScores = 5;

Stmt overlapped(const For *loop, const BandStages &stages) {
    const auto extent = as_const_int(loop->extent);
    if (!extent) {
        cannot_overlap("the number of bands is not known", loop);
    }
    const int bands = static_cast<int>(*extent), last = bands - 1;
    if (bands < 2) {
        cannot_overlap("there is but one band", loop);
    }
    const Band band(loop, stages);
    const std::string name = unique_name("overlapped_band");
    const Expr i = Variable::make(Int(32), name);
    // Their conditions say that there is such a chunk, which the loop over chunks says too.
    const auto some_of = [&](const Part &part, int bands_ago, const Expr &wanted, const Expr &first, const Expr &end) {
        const Part own = band.of(part, clamp(i - bands_ago, 0, last));
        return Rider{own.statement, first, select(wanted, end - first, 0)};
    };
    const Expr passes = band.weights.loop()->extent, beside_scores = passes * kBesideScores / 8;
    const Expr elements = band.state.loop()->extent;
    const Expr of_last = i >= 1 && i <= last + 1;
    const Stmt scores = with_riders(band.of(band.scores, i), {some_of(band.weights, 1, i > 0, 0, beside_scores)});
    const Stmt values =
        with_riders(band.of(band.values, i - 2), {some_of(band.weights, 1, of_last, beside_scores, passes),
                                                  some_of(band.state, 3, i > 2, 0, elements)});
    const auto alone = [&](const Expr &first, const Expr &end) {
        const Part own = band.of(band.weights, i - 1);
        return only_if(own.condition, some_passes(own.statement, first, end));
    };
    const Stmt in_loop = Block::make({
        IfThenElse::make(i <= last, scores),
        IfThenElse::make(i == last + 1, alone(0, beside_scores)),
        IfThenElse::make(i == 1, alone(beside_scores, passes)),
        IfThenElse::make(i >= 2, values),
        IfThenElse::make(of_last, band.all_of(band.sums, i - 1)),
        IfThenElse::make(i <= last, band.all_of(band.maxima, i)),
    });
    const Stmt all = Block::make({
        For::make(name, 0, bands + 2, ForType::Serial, Partition::Never, DeviceAPI::None, in_loop),
        band.statement_of(band.state, last),
    });
    return band.allocated(all);
}

}  // namespace

Stmt OverlappedBands::visit(const For *loop) {
    if (!loop->name.ends_with(std::string(".") + kBandLoop)) {
        return IRMutator::visit(loop);
    }
    const Contents contents(loop->body);
    const bool overlaps = contents.rooms > 0 && !contents.profiling;
    return overlaps ? mutate(overlapped(loop, stages_)) : IRMutator::visit(loop);
}

Stmt OverlappedBands::visit(const Evaluate *evaluate) {
    return is_room(evaluate->value.as<Call>()) ? Evaluate::make(0) : IRMutator::visit(evaluate);
}

}  // namespace hattn::schedules::x86
