#include "lane_exchange.h"

#include <sstream>
#include <stdexcept>

#include "matrix_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kLanes = 32;  // threads

// Without the number that Halide puts behind the names of arrays that it has moved.
std::string func_of(const std::string &array) {
    return array.substr(0, array.rfind('.'));
}

Expr at_lane(const Expr &index, const std::string &lane, int number) {
    return substitute(lane, number, index);
}

// Whether each lane reads at `index` what the lane with `mask` flipped in its number has stored at `place`.
bool is_of_lane(const Expr &index, const Expr &place, const std::string &lane, int mask) {
    for (int number = 0; number < kLanes; ++number) {
        const Expr apart = at_lane(index, lane, number) - at_lane(place, lane, number ^ mask);
        if (!is_const_zero(simplify(apart))) {
            return false;
        }
    }
    return true;
}

}  // namespace

Stmt LaneExchange::visit(const For *loop) {
    if (loop->for_type == ForType::GPUThread && ends_with(loop->name, ".thread_id_x")) {
        lane_ = is_const(loop->extent, kLanes) ? loop->name : "";
    }
    return IRMutator::visit(loop);
}

Stmt LaneExchange::visit(const Store *store) {
    Stmt result = IRMutator::visit(store);
    if (exchanged_.count(func_of(store->name))) {
        places_[store->name].push_back(store->index);
    }
    return result;
}

Expr LaneExchange::visit(const Load *load) {
    if (!exchanged_.count(func_of(load->name))) {
        return IRMutator::visit(load);
    }
    for (const Expr &place : places_[load->name]) {
        if (is_of_lane(load->index, place, lane_, 0)) {
            return load;
        }
        for (int mask = 1; mask < kLanes; mask *= 2) {
            if (is_of_lane(load->index, place, lane_, mask)) {
                const Expr own = Load::make(load->type, load->name, place, load->image, load->param, load->predicate,
                                            ModulusRemainder());
                return Call::make(load->type, kExchangeCall, {own, mask}, Call::PureExtern);
            }
        }
    }
    std::ostringstream text;
    text << "no lane of the warp holds in its registers what this reads: " << Expr(load);
    throw std::runtime_error(text.str());
}

}  // namespace hattn::schedules::cuda
