#include "unit_launch.h"

#include <algorithm>
#include <stdexcept>

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

namespace {

std::string offset_name(const std::string &buffer) {
    return buffer + ".unit_offset";
}

}  // namespace

bool UnitLaunch::differs(const Expr &value) const {
    return std::any_of(columns_.values.begin(), columns_.values.end(),
                       [&](const auto &column) { return expr_uses_var(value, column.first); }) ||
           std::any_of(moved_.begin(), moved_.end(), [&](const auto &let) { return expr_uses_var(value, let.first); });
}

Stmt UnitLaunch::visit(const LetStmt *let) {
    if (in_block_) {
        return IRMutator::visit(let);
    }
    if (columns_.values.count(let->name)) {
        return mutate(let->body);
    }
    if (differs(let->value)) {
        moved_.emplace_back(let->name, let->value);
        return mutate(let->body);
    }
    return IRMutator::visit(let);
}

Stmt UnitLaunch::visit(const IfThenElse *branch) {
    if (!in_block_ && differs(branch->condition)) {
        std::ostringstream text;
        text << "a condition around the whole kernel depends on the unit: " << branch->condition;
        throw std::runtime_error(text.str());
    }
    return IRMutator::visit(branch);
}

Expr UnitLaunch::column(int index, const std::string &block) const {
    const Expr differing = units_.differing;
    const Expr before = popcount(differing & ((1 << index) - 1)), width = popcount(differing);
    const Expr of_block = columns_.count + Variable::make(Int(32), block) * width + before;
    const Expr at = select((differing & (1 << index)) != 0, of_block, index);
    return Load::make(Int(32), units_.table.name(), at, Buffer<>(), units_.table.parameter(), const_true(),
                      ModulusRemainder());
}

Stmt UnitLaunch::visit(const For *loop) {
    if (loop->for_type != ForType::GPUBlock) {
        return IRMutator::visit(loop);
    }
    if (in_block_) {
        throw std::runtime_error("the kernel has more than one loop over blocks: " + loop->name);
    }
    in_block_ = true;
    Stmt body = mutate(loop->body);
    for (size_t i = moved_.size(); i-- > 0;) {
        body = LetStmt::make(moved_[i].first, mutate(moved_[i].second), body);
    }
    in_block_ = false;
    // There is one tile: its loop variable is 0. The name now counts units.
    body = substitute(loop->name, Expr(0), body);
    for (const auto &[name, index] : columns_.values) {
        body = LetStmt::make(name, column(index, loop->name), body);
    }
    for (const auto &[name, index] : columns_.offsets) {
        body = LetStmt::make(offset_name(name), column(index, loop->name), body);
    }
    return For::make(loop->name, 0, Expr(units_.count), loop->for_type, loop->partition_policy, loop->device_api, body);
}

Expr UnitLaunch::shifted(const std::string &buffer, const Expr &index) const {
    Expr offset = Variable::make(Int(32), offset_name(buffer));
    return index.type().is_scalar() ? index + offset : index + Broadcast::make(offset, index.type().lanes());
}

Expr UnitLaunch::visit(const Load *load) {
    Expr result = IRMutator::visit(load);
    const Load *op = result.as<Load>();
    if (!in_block_ || !columns_.offsets.count(op->name)) {
        return result;
    }
    return Load::make(op->type, op->name, shifted(op->name, op->index), op->image, op->param, op->predicate,
                      ModulusRemainder());
}

Stmt UnitLaunch::visit(const Store *store) {
    Stmt result = IRMutator::visit(store);
    const Store *op = result.as<Store>();
    if (!in_block_ || !columns_.offsets.count(op->name)) {
        return result;
    }
    return Store::make(op->name, op->value, shifted(op->name, op->index), op->param, op->predicate, ModulusRemainder());
}

}  // namespace hattn::schedules::gpu
