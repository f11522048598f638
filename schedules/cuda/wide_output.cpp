#include "wide_output.h"

#include <iterator>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "generators/number_formats.h"
#include "matrix_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kStoringLanes = 32;
constexpr int kAtOnce = 4;       // elements
constexpr int kLoadsAtOnce = 4;  // of so many, by a thread

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

// Four values of one type, from an index on. (Without parameters of buffers, whose elements are all that Halide takes
// to be aligned.)
Stmt WideOutput::store_four(const Expr &value, const Expr &first, hattn_dtype type) const {
    const auto element = [&](int i) { return Shuffle::make_extract_element(value, i); };
    const auto pair = [&](int i) {
        return type == HATTN_BFLOAT16
                   ? Call::make(UInt(32), kBfloat16PairCall, {element(i), element(i + 1)}, Call::PureExtern)
                   : pair_in_word(generators::float16_bits(element(i)), generators::float16_bits(element(i + 1)));
    };
    return type == HATTN_FLOAT32
               ? Store::make(output_, value, Ramp::make(first, 1, kAtOnce), Parameter(), const_true(kAtOnce),
                             ModulusRemainder(kAtOnce, 0))
               : Store::make(storage_.halves.name(), Shuffle::make_concat({pair(0), pair(2)}),
                             Ramp::make(first / 2, 1, 2), Parameter(), const_true(2), ModulusRemainder(2, 0));
}

// Of the blocks of a row, the one that a thread stores.
struct WideOutput::Place {
    std::string row, element;  // variables
    std::map<std::string, Expr> loops;
    Expr is_there;
};

WideOutput::Place WideOutput::place_of(const Nest &nest) const {
    Place place{unique_name("stored_row"), unique_name("stored_element"), {}, const_true()};
    const Expr row = Variable::make(Int(32), place.row), element = Variable::make(Int(32), place.element);
    place.loops = {{warp_, row % stored_.warps},
                   {nest.loops[0]->name, row / stored_.warps},
                   {lane_, element % kStoringLanes},
                   {nest.loops[1]->name, element / kStoringLanes}};
    for (const For *loop : nest.loops) {
        const Expr within = Variable::make(Int(32), loop->name) < loop->min + loop->extent;
        place.is_there = place.is_there && simplify(substitute(place.loops, within));
    }
    return place;
}

Stmt WideOutput::wide(const Nest &nest) const {
    constexpr hattn_dtype kTypes[] = {HATTN_FLOAT32, HATTN_FLOAT16, HATTN_BFLOAT16};
    const int blocks = stored_.head / kAtOnce, threads = kStoringLanes * stored_.warps;
    const int turns = stored_.rows * blocks / threads, loads = std::gcd(turns, kLoadsAtOnce);
    if (stored_.rows * blocks % threads != 0) {
        fail(nest.statement);
    }
    const std::string turn = unique_name("stored_turn");
    std::vector<std::pair<std::string, Expr>> lets;
    std::vector<Stmt> of_rows, of_type[std::size(kTypes)];
    for (int i = 0; i < loads; ++i) {
        const Place place = place_of(nest);
        const Expr block = (Variable::make(Int(32), turn) * loads + i) * threads +
                           Variable::make(Int(32), warp_) * kStoringLanes + Variable::make(Int(32), lane_);
        lets.emplace_back(place.row, simplify(block / blocks));
        lets.emplace_back(place.element, simplify(block % blocks) * kAtOnce);
        for (const Store *all : nest.stores) {
            const Stmt statement = simplify(substitute(place.loops, Stmt(all)));
            const Store *store = statement.as<Store>();
            const Load *load = store ? store->value.as<Load>() : nullptr;
            if (!load || !is_const_one(store->predicate)) {
                fail(statement);
            }
            if (of_four(store->index, place.element).type().is_scalar()) {
                const Expr is_first = Variable::make(Int(32), place.element) == 0;
                of_rows.push_back(IfThenElse::make(place.is_there && is_first, statement));
                continue;
            }
            const Expr from = of_four(load->index, place.element);
            if (store->name != output_ || from.type().is_scalar()) {
                fail(statement);
            }
            const std::string value = unique_name("four_values"), first = unique_name("first_index");
            // Shared memory is there for rows that are not.
            lets.emplace_back(value, Load::make(Float(32, kAtOnce), load->name, from, load->image, load->param,
                                                const_true(kAtOnce), ModulusRemainder(kAtOnce, 0)));
            lets.emplace_back(first, store->index);
            for (size_t t = 0; t < std::size(kTypes); ++t) {
                of_type[t].push_back(
                    IfThenElse::make(place.is_there, store_four(Variable::make(Float(32, kAtOnce), value),
                                                                Variable::make(Int(32), first), kTypes[t])));
            }
        }
    }
    // One branch for all of them, so that loads are on their way at once and stores are conditional instructions.
    Stmt body = IfThenElse::make(
        storage_.type == kTypes[0], Block::make(of_type[0]),
        IfThenElse::make(storage_.type == kTypes[1], Block::make(of_type[1]), Block::make(of_type[2])));
    if (!of_rows.empty()) {
        body = Block::make(body, Block::make(of_rows));
    }
    for (size_t i = lets.size(); i-- > 0;) {
        body = LetStmt::make(lets[i].first, lets[i].second, body);
    }
    return For::make(turn, 0, turns / loads, ForType::Serial, Partition::Never, DeviceAPI::None, body);
}

Stmt WideOutput::visit(const ProducerConsumer *stage) {
    if (stage->is_producer || stage->name != stored_.stage) {
        return IRMutator::visit(stage);
    }
    const Nest nest = nest_of(stage->body);
    return ProducerConsumer::make_consume(stage->name, IfThenElse::make(stored_.aligned, wide(nest), stage->body));
}

}  // namespace hattn::schedules::cuda
