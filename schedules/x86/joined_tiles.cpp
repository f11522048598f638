#include "joined_tiles.h"

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "schedules/statements.h"

namespace hattn::schedules::x86 {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kJoined = 4;  // of eight tiles, with one for each side of a product

// What becomes of a tile of sums: set to zero, added to in a loop, stored.
struct Sums {
    std::string name;
    Stmt zero, products, stored;
};

[[noreturn]] void refuse(const Stmt &statement) {
    std::ostringstream text;
    text << "a tile of sums is used in another way than to be set to zero, added to in a loop and stored: " << statement;
    throw std::runtime_error(text.str());
}

void take(const Stmt &statement, Sums &sums) {
    const Stmt inside = without_lets(statement);
    if (const Block *block = inside.as<Block>()) {
        take(block->first, sums);
        take(block->rest, sums);
    } else if (const ProducerConsumer *stage = inside.as<ProducerConsumer>()) {
        take(stage->body, sums);
    } else if (inside.as<For>()) {
        sums.products = inside;
    } else if (inside.as<Store>()) {
        sums.zero = inside;
    } else if (inside.as<Evaluate>()) {
        sums.stored = inside;
    } else if (!inside.as<Free>()) {
        refuse(inside);
    }
}

Sums sums_of(const Allocate *tile) {
    Sums sums{.name = tile->name};
    take(tile->body, sums);
    if (!sums.zero.defined() || !sums.products.defined() || !sums.stored.defined()) {
        refuse(tile);
    }
    return sums;
}

// Gives a tile another name.
class Renamed : public IRMutator {
public:
    Renamed(const std::string &from, std::string to) : from_(from), to_(std::move(to)) {}

private:
    using IRMutator::visit;

    Expr visit(const Load *load) override {
        return load->name == from_ ? Load::make(load->type, to_, load->index, load->image, load->param, load->predicate,
                                                load->alignment)
                                   : IRMutator::visit(load);
    }
    Stmt visit(const Store *store) override {
        return store->name == from_ ? Store::make(to_, mutate(store->value), store->index, store->param,
                                                  store->predicate, store->alignment)
                                    : IRMutator::visit(store);
    }

    const std::string &from_;
    const std::string to_;
};

}  // namespace

Stmt JoinedTiles::visit(const For *loop) {
    const Stmt body = without_lets(loop->body);
    const Allocate *tile = body.as<Allocate>();
    const auto passes = as_const_int(loop->extent);
    if (!tile || tile->memory_type != MemoryType::AMXTile || !passes || *passes % kJoined != 0) {
        return IRMutator::visit(loop);
    }
    const Sums sums = sums_of(tile);
    const For *blocks = sums.products.as<For>();
    const Expr first = Variable::make(Int(32), loop->name) * kJoined;
    std::vector<Stmt> zeros, products, stores;
    std::vector<std::string> names;
    for (int pass = 0; pass < kJoined; ++pass) {
        names.push_back(sums.name + "." + std::to_string(pass));
        Renamed renamed(sums.name, names.back());
        const auto of_pass = [&](const Stmt &statement) {
            return simplify(renamed.mutate(substitute(loop->name, first + (loop->min + pass), statement)));
        };
        zeros.push_back(of_pass(sums.zero));
        products.push_back(of_pass(blocks->body));
        stores.push_back(of_pass(sums.stored));
        stores.push_back(Free::make(names.back()));
    }
    Stmt joined = Block::make({Block::make(zeros),
                               For::make(blocks->name, blocks->min, blocks->extent, blocks->for_type,
                                         blocks->partition_policy, blocks->device_api, Block::make(products)),
                               Block::make(stores)});
    for (const std::string &name : names) {
        joined = Allocate::make(name, tile->type, tile->memory_type, tile->extents, tile->condition, joined);
    }
    return For::make(loop->name, 0, static_cast<int>(*passes) / kJoined, loop->for_type, loop->partition_policy,
                     loop->device_api, joined);
}

}  // namespace hattn::schedules::x86
