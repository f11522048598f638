#include "thread_registers.h"

#include <algorithm>
#include <stdexcept>

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

bool ThreadRegisters::uses_threads(const Expr &value) const {
    return std::any_of(threads_.begin(), threads_.end(),
                       [&](const std::string &name) { return expr_uses_var(value, name); });
}

Stmt ThreadRegisters::visit(const For *loop) {
    const bool over_threads = loop->for_type == ForType::GPUThread || loop->for_type == ForType::GPULane;
    if (over_threads) {
        threads_.push_back(loop->name);
    }
    Stmt result = IRMutator::visit(loop);
    if (over_threads) {
        threads_.pop_back();
    }
    return result;
}

// Values made of thread coordinates go where they are used, so that indices show them.
Stmt ThreadRegisters::visit(const LetStmt *let) {
    if (!arrays_.empty() && uses_threads(let->value) && is_pure(let->value)) {
        return mutate(substitute(let->name, let->value, let->body));
    }
    outer_[let->name] = let->value;
    Stmt result = IRMutator::visit(let);
    outer_.erase(let->name);
    return result;
}

Expr ThreadRegisters::visit(const Let *let) {
    if (!arrays_.empty() && uses_threads(let->value) && is_pure(let->value)) {
        return mutate(substitute(let->name, let->value, let->body));
    }
    return IRMutator::visit(let);
}

Expr ThreadRegisters::index_in_thread(const std::string &name, const Expr &index) {
    Array &array = arrays_.at(name);
    std::map<std::string, Expr> first_thread;
    for (const std::string &thread : threads_) {
        first_thread[thread] = 0;
    }
    Expr own = substitute_in_all_lets(index);
    for (Expr before; !own.same_as(before);) {
        before = own;
        own = substitute(outer_, own);
    }
    own = simplify(substitute(first_thread, own));
    // Coordinates that are the same throughout, like that of the chunk, add whole arrays.
    const auto size = static_cast<int32_t>(array.group_size);
    const Ramp *ramp = own.as<Ramp>();
    Expr first = simplify((ramp ? ramp->base : own) % size);
    const auto constant = as_const_int(first);
    const auto stride = ramp ? as_const_int(ramp->stride) : std::optional<int64_t>(0);
    if (!constant || !stride || *stride < 0) {
        std::ostringstream text;
        text << "array " << name << " is to be kept in registers, but indexed by " << own;
        throw std::runtime_error(text.str());
    }
    const int64_t last = *constant + (ramp ? (ramp->lanes - 1) * *stride : 0);
    array.thread_size = std::max(array.thread_size, last + 1);
    return ramp ? Ramp::make(first, ramp->stride, ramp->lanes) : first;
}

Stmt ThreadRegisters::visit(const Allocate *allocation) {
    if (allocation->memory_type != MemoryType::Register || !threads_.empty()) {
        return IRMutator::visit(allocation);
    }
    arrays_[allocation->name] = {allocation->constant_allocation_size(), 0};
    Stmt body = mutate(allocation->body);
    const auto size = static_cast<int32_t>(arrays_.at(allocation->name).thread_size);
    arrays_.erase(allocation->name);
    return Allocate::make(allocation->name, allocation->type, allocation->memory_type, {size}, const_true(), body);
}

Expr ThreadRegisters::visit(const Load *load) {
    if (!arrays_.count(load->name)) {
        return IRMutator::visit(load);
    }
    return Load::make(load->type, load->name, index_in_thread(load->name, load->index), load->image, load->param,
                      mutate(load->predicate), ModulusRemainder());
}

Stmt ThreadRegisters::visit(const Store *store) {
    if (!arrays_.count(store->name)) {
        return IRMutator::visit(store);
    }
    return Store::make(store->name, mutate(store->value), index_in_thread(store->name, store->index), store->param,
                       mutate(store->predicate), ModulusRemainder());
}

}  // namespace hattn::schedules::gpu
