#include "wide_output.h"

#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "generators/number_formats.h"
#include "matrix_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kStoringLanes = 32;
constexpr int kAtOnce = 4;  // elements

template<typename T>
[[noreturn]] void fail(const T &what) {
    std::ostringstream text;
    text << "the output is not stored as four elements are at once: " << what;
    throw std::runtime_error(text.str());
}

// Four elements side by side; what is the same for all of a row as it is.
Expr of_four(const Expr &index, const std::string &element) {
    const Expr apart = simplify(substitute(element, Variable::make(Int(32), element) + 1, index) - index);
    if (is_const_zero(apart)) {
        return index;
    }
    if (!is_const_one(apart)) {
        fail(index);
    }
    return Ramp::make(index, 1, kAtOnce);
}

Expr pair_in_word(const Expr &low, const Expr &high) {
    return cast<uint32_t>(low) | (cast<uint32_t>(high) << 16);
}

}  // namespace

struct WideOutput::Nest {
    std::vector<const For *> loops;  // over rows, over elements
    std::vector<const Store *> stores;
    Stmt statement;  // owns them
};

Stmt WideOutput::visit(const For *loop) {
    if (ends_with(loop->name, ".thread_id_x")) {
        lane_ = loop->name;
    } else if (ends_with(loop->name, ".thread_id_y")) {
        warp_ = loop->name;
    }
    return IRMutator::visit(loop);
}

WideOutput::Nest WideOutput::nest_of(Stmt statement) const {
    Nest nest;
    std::vector<Stmt> left = {statement};
    std::vector<Stmt> owned;
    while (!left.empty()) {
        const Stmt next = left.back();
        left.pop_back();
        owned.push_back(next);
        if (const LetStmt *let = next.as<LetStmt>()) {
            left.push_back(substitute(let->name, let->value, let->body));
        } else if (const ProducerConsumer *stage = next.as<ProducerConsumer>(); stage && !stage->is_producer) {
            left.push_back(stage->body);
        } else if (const Block *block = next.as<Block>()) {
            left.push_back(block->rest);
            left.push_back(block->first);
        } else if (const For *loop = next.as<For>(); loop && nest.stores.empty()) {
            nest.loops.push_back(loop);
            left.push_back(loop->body);
        } else if (const Store *store = next.as<Store>()) {
            nest.stores.push_back(store);
        } else {
            fail(next);
        }
    }
    if (nest.loops.size() != 2 || nest.stores.empty()) {
        fail(statement);
    }
    nest.statement = Block::make(owned);
    return nest;
}

Stmt WideOutput::wide_store(const Store *store, const std::string &element) const {
    const Load *load = store->value.as<Load>();
    const Expr index = of_four(store->index, element);
    if (!load || !is_const_one(store->predicate)) {
        fail(Stmt(store));
    }
    if (index.type().is_scalar()) {
        return IfThenElse::make(Variable::make(Int(32), element) == 0, Stmt(store));
    }
    const Expr from = of_four(load->index, element);
    if (store->name != output_ || from.type().is_scalar()) {
        fail(Stmt(store));
    }
    const std::string value_name = unique_name("four_values"), index_name = unique_name("first_index");
    const Expr value = Variable::make(Float(32, kAtOnce), value_name), first = Variable::make(Int(32), index_name);
    std::vector<Expr> each;
    for (int i = 0; i < kAtOnce; ++i) {
        each.push_back(Shuffle::make_extract_element(value, i));
    }
    // Without their parameters, whose elements are all that Halide takes to be aligned.
    const auto store_halves = [&](const Expr &low, const Expr &high) {
        return Store::make(storage_.halves.name(), Shuffle::make_concat({low, high}), Ramp::make(first / 2, 1, 2),
                           Parameter(), const_true(2), ModulusRemainder(2, 0));
    };
    const auto bfloat16 = [&](int i) {
        return Call::make(UInt(32), kBfloat16PairCall, {each[i], each[i + 1]}, Call::PureExtern);
    };
    const auto float16 = [&](int i) {
        return pair_in_word(generators::float16_bits(each[i]), generators::float16_bits(each[i + 1]));
    };
    const Stmt floats = Store::make(store->name, value, Ramp::make(first, 1, kAtOnce), Parameter(),
                                    const_true(kAtOnce), ModulusRemainder(kAtOnce, 0));
    const Stmt halves = IfThenElse::make(storage_.type == HATTN_FLOAT16, store_halves(float16(0), float16(2)),
                                         store_halves(bfloat16(0), bfloat16(2)));
    const Stmt typed = IfThenElse::make(storage_.type == HATTN_FLOAT32, floats, halves);
    const Expr loaded = Load::make(Float(32, kAtOnce), load->name, from, load->image, load->param, const_true(kAtOnce),
                                   ModulusRemainder(kAtOnce, 0));
    return LetStmt::make(value_name, loaded, LetStmt::make(index_name, store->index, typed));
}

Stmt WideOutput::wide(const Nest &nest) const {
    const std::string row_name = unique_name("stored_row"), element_name = unique_name("stored_element");
    const Expr row = Variable::make(Int(32), row_name), element = Variable::make(Int(32), element_name);
    const std::map<std::string, Expr> places = {{warp_, row % stored_.warps},
                                                {nest.loops[0]->name, row / stored_.warps},
                                                {lane_, element % kStoringLanes},
                                                {nest.loops[1]->name, element / kStoringLanes}};
    const auto here = [&](const Expr &value) { return simplify(substitute(places, value)); };
    Expr is_there = const_true();
    for (const For *loop : nest.loops) {
        is_there = is_there && here(Variable::make(Int(32), loop->name) < loop->min + loop->extent);
    }
    std::vector<Stmt> stores;
    for (const Store *store : nest.stores) {
        const Stmt moved = simplify(substitute(places, Stmt(store)));
        stores.push_back(wide_store(moved.as<Store>(), element_name));
    }
    const int blocks = stored_.head / kAtOnce, threads = kStoringLanes * stored_.warps;
    const int turns = stored_.rows * blocks / threads;
    if (stored_.rows * blocks % threads != 0) {
        fail(nest.statement);
    }
    const std::string turn = unique_name("stored_turn");
    const Expr block = Variable::make(Int(32), turn) * threads + Variable::make(Int(32), warp_) * kStoringLanes +
                       Variable::make(Int(32), lane_);
    Stmt body = IfThenElse::make(is_there, Block::make(stores));
    body = LetStmt::make(element_name, simplify(block % blocks) * kAtOnce, body);
    body = LetStmt::make(row_name, simplify(block / blocks), body);
    return For::make(turn, 0, turns, ForType::Serial, Partition::Never, DeviceAPI::None, body);
}

Stmt WideOutput::visit(const ProducerConsumer *stage) {
    if (stage->is_producer || stage->name != stored_.stage) {
        return IRMutator::visit(stage);
    }
    const Nest nest = nest_of(stage->body);
    return ProducerConsumer::make_consume(stage->name, IfThenElse::make(stored_.aligned, wide(nest), stage->body));
}

}  // namespace hattn::schedules::cuda
