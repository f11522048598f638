#include "spread_copies.h"

#include <algorithm>
#include <stdexcept>

#include "matrix_nest.h"
#include "schedules/statements.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// Before the first copy behind other accesses ptxas puts three loads that load nothing.
constexpr size_t kTogether = 4;

[[noreturn]] void fail(const std::string &name) {
    throw std::runtime_error("copies of a tile are not in a known form: " + name);
}

// Loops and lets around them are gone.
void take_stores(const Stmt &statement, const std::string &name, std::vector<Stmt> &stores) {
    if (const Block *block = statement.as<Block>()) {
        take_stores(block->first, name, stores);
        take_stores(block->rest, name, stores);
    } else if (const LetStmt *let = statement.as<LetStmt>()) {
        take_stores(substitute(let->name, let->value, let->body), name, stores);
    } else if (const For *loop = statement.as<For>()) {
        const auto first = as_const_int(simplify(loop->min)), extent = as_const_int(simplify(loop->extent));
        if (!first || !extent || loop->for_type != ForType::Serial) {
            fail(name);
        }
        for (int64_t i = *first; i < *first + *extent; ++i) {
            take_stores(substitute(loop->name, static_cast<int32_t>(i), loop->body), name, stores);
        }
    } else if (statement.as<Store>()) {
        stores.push_back(simplify(statement));
    } else {
        fail(name);
    }
}

class AmongProducts : public IRMutator {
public:
    AmongProducts(const std::string &tile, const std::vector<Stmt> &copies) : tile_(tile), copies_(copies) {}
    bool is_done = false;

private:
    using IRMutator::visit;

    Stmt visit(const ProducerConsumer *stage) override {
        const ScopedValue<bool> inside(inside_, inside_ || (!stage->is_producer && stage->name == tile_));
        return IRMutator::visit(stage);
    }

    Stmt visit(const Block *block) override {
        const std::vector<Stmt> all = statements_of(block);
        size_t products = 0;
        for (const Stmt &statement : all) {
            products += inside_ && is_product(statement);
        }
        if (products == 0) {
            return IRMutator::visit(block);
        }
        if (is_done) {
            fail(tile_);
        }
        is_done = true;
        // Among the first half, since what is asked for has to come.
        std::vector<Stmt> result;
        size_t copied = 0, before = 0;
        for (const Stmt &statement : all) {
            const size_t together = std::min(copied + kTogether, copies_.size());
            if (copied < together && 2 * copies_.size() * before >= together * products) {
                result.insert(result.end(), copies_.begin() + copied, copies_.begin() + together);
                copied = together;
            }
            result.push_back(statement);
            before += is_product(statement);
        }
        return Block::make(result);
    }

    static bool is_product(const Stmt &statement) {
        return nest_in(statement).defined();
    }

    const std::string &tile_;
    const std::vector<Stmt> &copies_;
    bool inside_ = false;
};

}  // namespace

TileCopies copies_of_tile(const std::string &name, const Stmt &stage, const Expr &condition) {
    const IfThenElse *choice = stage.as<IfThenElse>();
    if (!choice || !choice->else_case.defined()) {
        fail(name);
    }
    TileCopies copies;
    std::vector<Stmt> stores;
    take_stores(choice->then_case, name, stores);
    for (const Stmt &store : stores) {
        copies.single.push_back(
            ProducerConsumer::make_produce(name, IfThenElse::make(choice->condition && condition, store)));
    }
    copies.others =
        ProducerConsumer::make_produce(name, IfThenElse::make(!choice->condition && condition, choice->else_case));
    return copies;
}

Stmt among_products(const Stmt &user, const std::string &tile, const std::vector<Stmt> &copies) {
    AmongProducts among(tile, copies);
    Stmt result = among.mutate(user);
    if (!among.is_done) {
        fail(tile);
    }
    return result;
}

}  // namespace hattn::schedules::cuda
