#include "matrix_tiles.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "overlapped_bands.h"
#include "schedules/statements.h"
#include "tile_sums.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kSums = kSide * kSide;

Expr bytes(const Expr &elements, int size) {
    return simplify(elements * size);
}

Expr register_of(const std::string &name, const Type &type) {
    return Load::make(type, name, Ramp::make(0, 1, kSums), {}, {}, const_true(kSums), {});
}

Stmt set_register(const std::string &name, const Expr &value) {
    return Store::make(name, value, Ramp::make(0, 1, kSums), Parameter(), const_true(kSums), ModulusRemainder());
}

// Lest LLVM keeps a side from one load of it to the next one, for which there is no register: a fetch might be a store,
// as far as LLVM knows.
Stmt forget(const Rows &rows, const Type &type) {
    return Evaluate::make(Call::make(type, Call::prefetch, {rows.array, rows.start, 1, 1}, Call::Intrinsic));
}

// Sides that a product has and those before it had not.
struct Asked {
    NamedValues named;
    Stmt before;  // undefined unless one is loaded again

    // The product, and all that comes after it.
    Stmt around(const Stmt &product, const Stmt &later) const {
        const Stmt all = named.around(later.defined() ? Block::make(product, later) : product);
        return before.defined() ? Block::make(before, all) : all;
    }
};

// Sides of the products of a step, each brought into a register once; those that were there in the step before stay.
class Sides {
public:
    explicit Sides(const MatrixNumbers &of) : of_(of) {}

    Expr operator()(const Rows &rows) {
        const Expr load = load_of(rows);
        for (const std::vector<Side> *known : {&of_step_, &of_last_step_}) {
            for (const Side &side : *known) {
                if (equal(side.load, load)) {
                    const Side same = side;
                    of_step_.push_back(same);
                    return same.name;
                }
            }
        }
        if (std::ranges::any_of(earlier_, [&](const Expr &other) { return equal(other, load); })) {
            asked_.before = forget(rows, of_.type);
        }
        earlier_.push_back(load);
        of_step_.push_back({load, asked_.named(load)});
        return of_step_.back().name;
    }

    bool has(const Rows &rows) const {
        const Expr load = load_of(rows);
        const auto is_it = [&](const Side &side) { return equal(side.load, load); };
        return std::ranges::any_of(of_last_step_, is_it);
    }

    void next_step() {
        of_last_step_ = std::exchange(of_step_, {});
    }

    // What was asked for since the last call.
    Asked take_asked() {
        return std::exchange(asked_, {});
    }

private:
    struct Side {
        Expr load, name;
    };

    Expr load_of(const Rows &rows) const {
        const int size = of_.type.bytes();
        return Call::make(of_.type.with_lanes(kSide * of_.depth()), "tile_load",
                          {kSide, of_.depth() * size, rows.array, bytes(rows.start, size), bytes(rows.stride, size)},
                          Call::Intrinsic);
    }

    const MatrixNumbers of_;
    std::vector<Side> of_step_, of_last_step_;
    std::vector<Expr> earlier_;
    Asked asked_;
};

bool are_same(const Rows &one, const Rows &other) {
    return equal(one.array, other.array) && equal(one.start, other.start);
}

// What is said of places by more than a name and numbers, named outside the loops: addresses, and what arrays hold.
class NamedPlaces {
public:
    explicit NamedPlaces(const std::vector<Stmt> &loops) : named_(loops) {}

    Rows operator()(Rows rows) {
        rows.start = named_.mutate(rows.start);
        if (!rows.array.as<Variable>()) {
            rows.array = named_.of(rows.array);
        }
        return rows;
    }

    Stmt around(const Stmt &body) const {
        return named_.around(body);
    }

private:
    class Named : public IRMutator {
    public:
        explicit Named(const std::vector<Stmt> &loops) : loops_(loops) {}

        Expr of(const Expr &value) {
            Expr &name = known_[value];
            if (!name.defined()) {
                name = names_(value);
            }
            return name;
        }

        Stmt around(const Stmt &body) const {
            return names_.around(body);
        }

    private:
        using IRMutator::visit;

        Expr visit(const Load *load) override {
            const bool varies = std::ranges::any_of(
                loops_, [&](const Stmt &loop) { return expr_uses_var(load->index, loop.as<For>()->name); });
            return varies ? IRMutator::visit(load) : of(load);
        }

        const std::vector<Stmt> &loops_;
        std::map<Expr, Expr, IRDeepCompare> known_;
        NamedValues names_;
    };

    Named named_;
};

struct Joined {
    std::vector<Stmt> loops;  // the outermost first
    Stmt tile;                // what is in them
};

std::optional<Joined> joined_in(const For *loop) {
    Joined joined{.loops = {}, .tile = loop};
    int64_t passes = 1;
    while (const For *next = joined.tile.as<For>()) {
        const auto extent = as_const_int(next->extent);
        if (!extent || (passes *= *extent) > kMostJoined) {
            return {};
        }
        joined.loops.push_back(joined.tile);
        joined.tile = without_lets(next->body);
    }
    const Allocate *tile = joined.tile.as<Allocate>();
    return tile && tile->memory_type == MemoryType::Stack ? std::optional(joined) : std::nullopt;
}

Expr in_pass(Expr value, const std::vector<Stmt> &loops, const std::vector<int> &pass) {
    for (size_t i = 0; i < loops.size(); ++i) {
        const For *loop = loops[i].as<For>();
        value = simplify(substitute(loop->name, simplify(loop->min + pass[i]), value));
    }
    return value;
}

Rows in_pass(const Rows &rows, const std::vector<Stmt> &loops, const std::vector<int> &pass) {
    Rows own = rows;
    own.array = in_pass(rows.array, loops, pass);
    own.start = in_pass(rows.start, loops, pass);
    own.stride = in_pass(rows.stride, loops, pass);
    return own;
}

// All passes of loops of constant extents.
std::vector<std::vector<int>> passes_of(const std::vector<Stmt> &loops) {
    std::vector<std::vector<int>> all = {{}};
    for (const Stmt &loop : loops) {
        std::vector<std::vector<int>> longer;
        for (const std::vector<int> &pass : all) {
            for (int i = 0; i < *as_const_int(loop.as<For>()->extent); ++i) {
                longer.push_back(pass);
                longer.back().push_back(i);
            }
        }
        all = std::move(longer);
    }
    return all;
}

// Lest registers of sums go through branches.
Expr limited_extent(const For *blocks, const Expr &condition) {
    const LT *less = condition.as<LT>();
    const Variable *block = less ? less->a.as<Variable>() : nullptr;
    if (block && block->name == blocks->name && !expr_uses_var(less->b, blocks->name)) {
        return max(min(blocks->extent, less->b - blocks->min), 0);
    }
    if (expr_uses_var(condition, blocks->name)) {
        refuse("its condition is no limit of blocks", blocks);
    }
    return select(condition, blocks->extent, 0);
}

}  // namespace

Stmt MatrixTiles::visit(const For *loop) {
    const std::optional<Joined> joined = joined_in(loop);
    if (!joined) {
        return IRMutator::visit(loop);
    }
    const Sums sums = sums_of(joined->tile.as<Allocate>());
    const Type type = sums.of.sum.with_lanes(kSums);
    const Expr row_bytes = kSide * 4;
    std::vector<Stmt> zeros, stores;
    std::vector<std::string> names;
    const std::vector<std::vector<int>> passes = passes_of(joined->loops);
    for (const std::vector<int> &pass : passes) {
        names.push_back(sums.name + "." + std::to_string(names.size()));
        zeros.push_back(set_register(
            names.back(), Call::make(type, "tile_zero", {Cast::make(Int(16), kSide), Cast::make(Int(16), row_bytes)},
                                     Call::Intrinsic)));
        const Rows stored = in_pass(sums.stored, joined->loops, pass);
        stores.push_back(Evaluate::make(Call::make(Int(32), "tile_store",
                                                   {kSide, row_bytes, stored.array, bytes(stored.start, 4),
                                                    bytes(stored.stride, 4), register_of(names.back(), type)},
                                                   Call::Intrinsic)));
        stores.push_back(Free::make(names.back()));
    }
    // Each product is within the lets of those before it, so that a side is in a register from its first to its last
    // use.
    std::vector<std::pair<Asked, Stmt>> products;
    Sides sides(sums.of);
    NamedPlaces places(sums.loops);
    // After every second one, of terms, and the last.
    constexpr size_t kBetweenRooms = 2;
    const Stmt room = Evaluate::make(Call::make(Int(32), kRoomCall, {}, Call::Intrinsic));
    size_t products_left = sums.products.size();
    for (const Product &product : sums.products) {
        struct Part {
            size_t of_sums;
            Rows left, right;
        };
        std::vector<Part> parts;
        for (size_t i = 0; i < passes.size(); ++i) {
            const auto own = [&](const Rows &rows) { return places(in_pass(rows, joined->loops, passes[i])); };
            parts.push_back({i, own(product.left), own(product.right)});
        }
        // Those that share a side that is new one after the other.
        const bool by_right = sides.has(parts.front().left);
        for (auto part = parts.begin(); part != parts.end();) {
            const Rows shared = by_right ? part->right : part->left;
            part = std::stable_partition(part, parts.end(), [&](const Part &other) {
                return are_same(by_right ? other.right : other.left, shared);
            });
        }
        for (const Part &part : parts) {
            const Expr left = sides(part.left), right = sides(part.right);
            const std::string &name = names[part.of_sums];
            const Expr sum =
                Call::make(type, "tile_matmul",
                           {kSide, row_bytes, sums.of.depth(), register_of(name, type), left, right}, Call::Intrinsic);
            products.emplace_back(sides.take_asked(), set_register(name, sum));
        }
        sides.next_step();
        if (--products_left % kBetweenRooms == 0) {
            products.back().second = Block::make(products.back().second, room);
        }
    }
    Stmt added;
    for (auto product = products.rbegin(); product != products.rend(); ++product) {
        added = product->first.around(product->second, added);
    }
    for (auto over = sums.loops.rbegin(); over != sums.loops.rend(); ++over) {
        const For *blocks = over->as<For>();
        // Of all passes, whose conditions are the same.
        Expr extent = in_pass(blocks->extent, joined->loops, passes.front());
        if (over == sums.loops.rbegin() && sums.condition.defined()) {
            extent = limited_extent(blocks, in_pass(sums.condition, joined->loops, passes.front()));
        }
        added = For::make(blocks->name, blocks->min, extent, blocks->for_type, blocks->partition_policy,
                          blocks->device_api, added);
    }
    Stmt all = places.around(Block::make({Block::make(zeros), added, Block::make(stores)}));
    for (const std::string &name : names) {
        all = Allocate::make(name, type, MemoryType::AMXTile, {1}, const_true(), all);
    }
    return all;
}

}  // namespace hattn::schedules::x86
