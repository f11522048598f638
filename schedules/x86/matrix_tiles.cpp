#include "matrix_tiles.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "schedules/statements.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kDepth = 32;      // elements of a side, by pairs
constexpr int kMostJoined = 4;  // of eight registers, with those for sides of products
constexpr int kSums = kSide * kSide;

[[noreturn]] void refuse(const char *what, const Stmt &statement) {
    std::ostringstream text;
    text << "a tile of sums is used in another way than to be set to zero, added to in a loop and stored: " << what
         << ", in " << statement;
    throw std::runtime_error(text.str());
}

// Where rows of a matrix lie.
struct Rows {
    std::string array;
    Expr start, stride;  // in elements
};

// Sides of 16 rows and of 16 columns; the right one in pairs of rows.
struct Product {
    Rows left, right;
};

// What becomes of a tile of sums.
struct Sums {
    std::string name;
    std::vector<Stmt> loops;  // over blocks of 32 elements, the outermost first
    std::vector<Product> products;
    Expr condition;  // of the first product, which that of all is; or undefined
    Rows stored;
};

Expr at(const Expr &index, const std::string &variable, int value) {
    return simplify(substitute(variable, value, index));
}

// A difference of products of several variables, which the simplifier does not multiply out: by example.
class Example : public IRMutator {
    using IRMutator::visit;

    Expr visit(const Variable *variable) override {
        const auto known = values_.find(variable->name);
        if (known != values_.end()) {
            return known->second;
        }
        next_ = next_ * 37 % 1009;
        return values_[variable->name] = make_const(variable->type, next_);
    }

    std::map<std::string, Expr> values_;
    int next_ = 11;
};

bool is_zero_everywhere(const Expr &difference) {
    return is_const_zero(simplify(Example().mutate(difference)));
}

Rows rows_of(const std::string &array, const Expr &index, const std::string &row, int last, int step,
             const Stmt &statement) {
    Rows rows{array, at(index, row, 0), {}};
    rows.stride = simplify(at(index, row, step) - rows.start);
    if (!is_zero_everywhere(at(index, row, last) - rows.start - rows.stride * (last / step))) {
        refuse("its rows are not evenly spaced", statement);
    }
    return rows;
}

// Of a dense vector of so many numbers the index of the first.
std::optional<Expr> first_of(const Expr &index, int lanes) {
    const Ramp *ramp = index.as<Ramp>();
    return ramp && ramp->lanes == lanes && is_const_one(ramp->stride) ? std::optional(ramp->base) : std::nullopt;
}

class Loads : public IRVisitor {
public:
    explicit Loads(const Expr &value) {
        value.accept(this);
    }
    const Load *scalar = nullptr, *pairs = nullptr;
    int count = 0;

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        if (load->type.element_of() == BFloat(16)) {
            (load->type.is_scalar() ? scalar : pairs) = load;
            ++count;
        }
    }
};

const For *fixed_loop(const Stmt &statement, int extent) {
    const For *loop = statement.as<For>();
    return loop && is_const_zero(loop->min) && is_const(loop->extent, extent) ? loop : nullptr;
}

// for (row, 16) for (element, 32) if (condition) sums[row] += left[row, element] * right[element]
void take_product(const Stmt &statement, Sums &sums) {
    const For *row = fixed_loop(statement, kSide);
    const Stmt of_row = row ? without_lets(row->body) : Stmt();
    const For *element = row ? fixed_loop(of_row, kDepth) : nullptr;
    Stmt of_element = element ? without_lets(element->body) : Stmt();
    if (const IfThenElse *some = element ? of_element.as<IfThenElse>() : nullptr; some && !some->else_case.defined()) {
        sums.condition = at(at(some->condition, row->name, 0), element->name, 0);
        of_element = without_lets(Stmt(some->then_case));
    }
    const Store *store = element ? of_element.as<Store>() : nullptr;
    if (!store || store->name != sums.name) {
        refuse("no loop over 16 rows and 32 elements", statement);
    }
    const Loads loads(substitute_in_all_lets(store->value));
    const auto pairs = loads.pairs ? first_of(loads.pairs->index, 2 * kSide) : std::nullopt;
    if (loads.count != 2 || !loads.scalar || !pairs) {
        refuse("no product of one number and of pairs", statement);
    }
    const Expr left = at(loads.scalar->index, element->name, 0);
    const Expr next = simplify(at(loads.scalar->index, element->name, kDepth - 1) - left);
    const Expr beside = simplify(at(*pairs, element->name, kDepth - 1) - at(*pairs, element->name, kDepth - 2));
    if (!is_const(next, kDepth - 1) || !is_const_one(beside) || expr_uses_var(*pairs, row->name)) {
        refuse("its sides are laid out in another way", statement);
    }
    sums.products.push_back({rows_of(loads.scalar->name, left, row->name, kSide - 1, 1, statement),
                             rows_of(loads.pairs->name, *pairs, element->name, kDepth - 2, 2, statement)});
}

// Such loops one after the other, in loops over blocks of elements.
void take_products(const Stmt &statement, Sums &sums) {
    const Stmt inside = without_lets(statement);
    const For *loop = inside.as<For>();
    if (const Block *block = inside.as<Block>()) {
        take_products(block->first, sums);
        take_products(block->rest, sums);
    } else if (loop && !fixed_loop(inside, kSide)) {
        if (!sums.products.empty()) {
            refuse("loops over blocks one after the other", inside);
        }
        sums.loops.push_back(inside);
        take_products(loop->body, sums);
    } else {
        take_product(inside, sums);
    }
}

void take_stores(const For *row, Sums &sums) {
    const Stmt inside = without_lets(row->body);
    const Store *store = inside.as<Store>();
    const Load *load = store ? store->value.as<Load>() : nullptr;
    const auto first = store ? first_of(store->index, kSide) : std::nullopt;
    if (!first || !load || load->name != sums.name || !is_const_one(store->predicate)) {
        refuse("no loop that stores its rows", row);
    }
    sums.stored = rows_of(store->name, *first, row->name, kSide - 1, 1, row);
}

void take(const Stmt &statement, Sums &sums) {
    const Stmt inside = without_lets(statement);
    if (const Block *block = inside.as<Block>()) {
        take(block->first, sums);
        take(block->rest, sums);
    } else if (const ProducerConsumer *stage = inside.as<ProducerConsumer>()) {
        take(stage->body, sums);
    } else if (const For *loop = fixed_loop(inside, kSide)) {
        const Stmt of_row = without_lets(loop->body);
        const Store *store = of_row.as<Store>();
        if (!store || store->name != sums.name) {
            take_stores(loop, sums);
        } else if (!is_const_zero(store->value)) {
            refuse("it does not begin at zero", inside);
        }
    } else if (inside.as<For>()) {
        take_products(inside, sums);
    } else if (!inside.as<Free>()) {
        refuse("another statement", inside);
    }
}

Sums sums_of(const Allocate *tile) {
    Sums sums{.name = tile->name};
    take(tile->body, sums);
    if (sums.products.empty() || sums.stored.array.empty()) {
        refuse("nothing is added, or nothing stored", tile);
    }
    return sums;
}

Expr bytes(const Expr &elements, int size) {
    return simplify(elements * size);
}

Expr register_of(const std::string &name) {
    return Load::make(Float(32, kSums), name, Ramp::make(0, 1, kSums), {}, {}, const_true(kSums), {});
}

Stmt set_register(const std::string &name, const Expr &value) {
    return Store::make(name, value, Ramp::make(0, 1, kSums), Parameter(), const_true(kSums), ModulusRemainder());
}

// Lest LLVM keeps a side from one load of it to the next one, for which there is no register: a fetch might be a store,
// as far as LLVM knows.
Stmt forget(const Rows &rows) {
    return Evaluate::make(Call::make(BFloat(16), Call::prefetch,
                                     {Variable::make(Handle(), rows.array), rows.start, 1, 1}, Call::Intrinsic));
}

// Sides of the products of a step, each brought into a register once; those that were there in the step before stay.
class Sides {
public:
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
            again_.push_back(rows);
        }
        earlier_.push_back(load);
        of_step_.push_back({load, named_(load)});
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

    // A product of sides asked for since the last one, and all that comes after it.
    Stmt around(const Stmt &product, const Stmt &later) const {
        Stmt all = named_.around(later.defined() ? Block::make(product, later) : product);
        return again_.empty() ? all : Block::make(forget(again_.front()), all);
    }

    // Begins another product; what was asked for is of the one that is returned.
    Sides split() {
        Sides one = *this;
        named_ = {};
        again_.clear();
        return one;
    }

private:
    struct Side {
        Expr load, name;
    };

    static Expr load_of(const Rows &rows) {
        return Call::make(
            BFloat(16, kSide * kDepth), "tile_load",
            {kSide, kDepth * 2, Variable::make(Handle(), rows.array), bytes(rows.start, 2), bytes(rows.stride, 2)},
            Call::Intrinsic);
    }

    std::vector<Side> of_step_, of_last_step_;
    std::vector<Expr> earlier_;
    std::vector<Rows> again_;
    NamedValues named_;
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
    const Type type = Float(32, kSums);
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
        stores.push_back(
            Evaluate::make(Call::make(Int(32), "tile_store",
                                      {kSide, row_bytes, Variable::make(Handle(), stored.array), bytes(stored.start, 4),
                                       bytes(stored.stride, 4), register_of(names.back())},
                                      Call::Intrinsic)));
        stores.push_back(Free::make(names.back()));
    }
    // Each product is within the lets of those before it, so that a side is in a register from its first to its last
    // use.
    std::vector<std::pair<Sides, Stmt>> products;
    Sides sides;
    for (const Product &product : sums.products) {
        struct Part {
            size_t of_sums;
            Rows left, right;
        };
        std::vector<Part> parts;
        for (size_t i = 0; i < passes.size(); ++i) {
            const auto own = [&](const Rows &rows) { return in_pass(rows, joined->loops, passes[i]); };
            parts.push_back({i, own(product.left), own(product.right)});
        }
        // Those that share a side that is new one after the other.
        const bool by_right = sides.has(parts.front().left);
        for (auto part = parts.begin(); part != parts.end();) {
            const Expr start = by_right ? part->right.start : part->left.start;
            part = std::stable_partition(part, parts.end(), [&](const Part &other) {
                return equal(by_right ? other.right.start : other.left.start, start);
            });
        }
        for (const Part &part : parts) {
            const Expr left = sides(part.left), right = sides(part.right);
            const std::string &name = names[part.of_sums];
            const Expr sum = Call::make(type, "tile_matmul", {kSide, row_bytes, kDepth, register_of(name), left, right},
                                        Call::Intrinsic);
            products.emplace_back(sides.split(), set_register(name, sum));
        }
        sides.next_step();
    }
    Stmt added;
    for (auto product = products.rbegin(); product != products.rend(); ++product) {
        added = product->first.around(product->second, added);
    }
    for (auto over = sums.loops.rbegin(); over != sums.loops.rend(); ++over) {
        const For *blocks = over->as<For>();
        Expr extent = blocks->extent;
        if (over == sums.loops.rbegin() && sums.condition.defined()) {
            extent = limited_extent(blocks, in_pass(sums.condition, joined->loops, passes.front()));
        }
        added = For::make(blocks->name, blocks->min, extent, blocks->for_type, blocks->partition_policy,
                          blocks->device_api, added);
    }
    Stmt all = Block::make({Block::make(zeros), added, Block::make(stores)});
    for (const std::string &name : names) {
        all = Allocate::make(name, type, MemoryType::AMXTile, {1}, const_true(), all);
    }
    return all;
}

}  // namespace hattn::schedules::x86
