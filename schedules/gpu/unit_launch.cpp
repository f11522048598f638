#include "unit_launch.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/device/packed_units.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

namespace {

std::string offset_name(const std::string &buffer) {
    return buffer + ".unit_offset";
}

constexpr auto kSteps = static_cast<int>(PackedUnits::kSteps);

// The loop over blocks in a dimension, by the name of the innermost one.
std::string blocks_name(const std::string &innermost, int dimension) {
    return innermost.substr(0, innermost.size() - gpu_block_name(0).size()) + gpu_block_name(dimension);
}

Expr variable(const std::string &name) {
    return Variable::make(Int(32), name);
}

// A load where there is something to load.
Expr if_there(const Expr &condition, const Expr &load, const Expr &otherwise) {
    return Call::make(load.type(), Call::if_then_else, {condition, load, otherwise}, Call::PureIntrinsic);
}

}  // namespace

DeviceUnits::DeviceUnits(int columns) {
    for (int i = 0; i < columns; ++i) {
        first.emplace_back("unit_first_" + std::to_string(i));
    }
    for (int i = 0; i < kSteps * columns; ++i) {
        steps.emplace_back("unit_step_" + std::to_string(i));
    }
}

std::vector<Argument> DeviceUnits::arguments() const {
    std::vector<Argument> all = {table, inner, middle, outer, turned, listed};
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), steps.begin(), steps.end());
    return all;
}

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

// Columns that are listed do not grow. (Numbers of blocks and arguments are what a GPU computes with once for a warp,
// in registers of their own.)
Expr UnitLaunch::column(int index, const std::string &block) const {
    const Expr listed = units_.listed;
    const Expr before = popcount(listed & ((1 << index) - 1)), width = popcount(listed);
    Expr unit = 0, grown = 0;
    const Expr extents[] = {units_.inner, units_.middle, units_.outer};
    for (int i = kSteps; i-- > 0;) {
        const Expr start = variable(blocks_name(block, i));
        const Expr from_end = Expr(units_.turned) - 1 - start;
        const Expr number = i == kSteps - 1 ? select(from_end >= 0, from_end, start) : start;
        unit = unit * extents[i] + number;
        grown += columns_.grow ? Expr(units_.steps[kSteps * index + i]) * number : 0;
    }
    const Expr is_listed = (listed & (1 << index)) != 0;
    const auto load_at = [&](const Expr &word) {
        return Load::make(Int(32), units_.table.name(), word, Buffer<>(), units_.table.parameter(), const_true(),
                          ModulusRemainder());
    };
    if (!columns_.grow) {
        return load_at(select(is_listed, columns_.count + unit * width + before, index));
    }
    return if_there(is_listed, load_at(unit * width + before), Expr(units_.first[index])) + grown;
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
    const Expr extents[] = {units_.inner, units_.middle, units_.outer};
    for (int i = 0; i < kSteps; ++i) {
        body = For::make(blocks_name(loop->name, i), 0, extents[i], loop->for_type, loop->partition_policy,
                         loop->device_api, body);
    }
    return body;
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
    const auto load_at = [&](const Expr &index) {
        return Load::make(op->type, op->name, index, op->image, op->param, op->predicate, ModulusRemainder());
    };
    if (!columns_.optional.count(op->name)) {
        return load_at(shifted(op->name, op->index));
    }
    if (op->type != Float(32)) {
        throw std::runtime_error("what a unit may be without is no float32 number: " + op->name);
    }
    // As bits: of numbers LLVM is told that they are finite. Something is loaded in any case, so that it is once.
    constexpr uint32_t kNegativeInfinity = 0xff800000;
    const Expr offset = variable(offset_name(op->name));
    return reinterpret(Float(32), select(offset >= 0, reinterpret(UInt(32), load_at(op->index + max(offset, 0))),
                                         make_const(UInt(32), kNegativeInfinity)));
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
