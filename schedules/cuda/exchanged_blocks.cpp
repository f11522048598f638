#include "exchanged_blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "matrix_calls.h"
#include "schedules/statements.h"
#include "shared_stages.h"
#include "warpgroup_calls.h"
#include "warpgroup_layout.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kBlock = 16, kSector = 32, kBanks = 128;  // bytes

// In a row, that change places.
int blocks_exchanged(int row_bytes) {
    return std::min(row_bytes & -row_bytes, kBanks) / kBlock;
}

// What the address of a byte of a tile is exclusive-or'd with.
Expr exchanged_bits(const Expr &bytes, int row_bytes, const Scope<Interval> &bounds) {
    const int step = row_bytes & -row_bytes, blocks = blocks_exchanged(row_bytes);
    const Expr row = step == kSector ? bytes / row_bytes / (kBanks / kSector) : bytes / std::max(step, kBanks);
    return simplify(row % blocks, true, bounds) * kBlock;
}

class Exchange : public SharedAccesses {
public:
    Exchange(const Tiles &tiles, const std::string &array, StageRanges all)
        : SharedAccesses(array, ""), tiles_(tiles), all_(std::move(all)) {
        inside_ = true;
    }

private:
    using SharedAccesses::visit;

    // Of elements of so many bytes, in a tile. Vectors are within a block. is_stored: all stores
    // into a tile may have one address, and constants added to it.
    Expr moved(const Expr &index, int bytes, const std::string &tile, bool is_stored) const {
        const int64_t first = all_.at(tile).first;
        const Expr simple = simplify(index, true, bounds_);
        if (const Ramp *ramp = simple.as<Ramp>()) {
            return Ramp::make(moved(ramp->base, bytes, tile, is_stored), ramp->stride, ramp->lanes);
        }
        const int begin = static_cast<int>(first) / bytes;
        const Expr in_tile = simplify((simple - begin) * bytes, true, bounds_);
        if (tiles_.warpgroups) {
            return begin + swizzled(in_tile, tiles_.rows.at(tile)) / bytes;
        }
        const std::optional<Expr> apart = is_stored ? exchanged_apart(in_tile) : std::nullopt;
        return apart ? begin + *apart / bytes : simple + exchanged_by(in_tile, tiles_.row_bytes, bounds_) / bytes;
    }

    // Where a byte of a tile of so many rows is for a warpgroup: the sum of what differs from thread to thread and of
    // whole groups of rows.
    Expr swizzled(const Expr &in_tile, int rows) const {
        const auto place = [&](const Expr &bytes) {
            const Expr row = simplify(bytes / tiles_.row_bytes, true, bounds_);
            const Expr in_row = simplify(bytes % tiles_.row_bytes, true, bounds_);
            const Expr in_part = simplify(in_row % kSwizzledRow, true, bounds_);
            const Expr bits = simplify(row % kSwizzledRows, true, bounds_) * kSwizzledBlock;
            return simplify(in_row / kSwizzledRow * (rows * kSwizzledRow) + row * kSwizzledRow, true, bounds_) +
                   Call::make(bits.type(), Call::bitwise_xor, {in_part, bits}, Call::PureIntrinsic);
        };
        const int tile = rows * tiles_.row_bytes, group = kSwizzledRows * tiles_.row_bytes;
        const Expr all_others = simplify(substitute(threads_, in_tile), true, bounds_);
        const Expr own = simplify(in_tile - all_others, true, bounds_);
        // Of one of the buffers.
        const Expr buffer = simplify(all_others / tile, true, bounds_) * tile;
        const Expr others = simplify(all_others % tile, true, bounds_);
        const Expr moved = can_prove(others % group == 0, bounds_)
                               ? place(own) + simplify(others / group * (kSwizzledRows * kSwizzledRow), true, bounds_)
                               : place(simplify(own + others, true, bounds_));
        return simplify(moved + buffer, true, bounds_);
    }

    // Where a byte of a tile whose blocks change places within sectors moves, as the sum of what differs from thread to
    // thread and of whole sectors. (The sum of all terms LLVM adds up in several orders, and has a register for each.)
    std::optional<Expr> exchanged_apart(const Expr &in_tile) const {
        const Expr others = simplify(substitute(threads_, in_tile), true, bounds_);
        const Expr own = simplify(in_tile - others, true, bounds_);
        const Expr bits = exchanged_bits(own, tiles_.row_bytes, bounds_);
        if (tiles_.row_bytes % (2 * kSector) == 0 || !can_prove(others % kSector == 0, bounds_) ||
            !equal(bits, exchanged_bits(in_tile, tiles_.row_bytes, bounds_))) {
            return {};
        }
        return Call::make(own.type(), Call::bitwise_xor, {own, bits}, Call::PureIntrinsic) + others;
    }

    Stmt visit(const For *loop) override {
        if (loop->for_type == ForType::GPUThread) {
            threads_[loop->name] = 0;
        }
        return SharedAccesses::visit(loop);
    }

    Stmt visit(const Store *store) override {
        const ProducerConsumer *stage = store->name == array_ ? producer() : nullptr;
        if (!stage || !tiles_.rows.count(stage->name)) {
            return SharedAccesses::visit(store);
        }
        return Store::make(store->name, mutate(store->value),
                           moved(store->index, store->value.type().bytes(), stage->name, true), store->param,
                           mutate(store->predicate), store->alignment);
    }

    // The tile that is read; null: none.
    const std::string *tile_at(const Expr &index, Type type) const {
        for (const ProducerConsumer *stage : stages_) {
            if (!stage->is_producer && tiles_.rows.count(stage->name) &&
                all_.at(stage->name).overlaps(range_of(index, type))) {
                return &stage->name;
            }
        }
        return nullptr;
    }

    Expr visit(const Load *load) override {
        if (load->name == array_ && tile_at(load->index, load->type.element_of())) {
            std::ostringstream text;
            text << "rows of a tile are read by no instruction for matrices: " << Expr(load);
            throw std::runtime_error(text.str());
        }
        return SharedAccesses::visit(load);
    }

    // Where matrices for a warpgroup begin.
    Expr with_addresses_moved(const Call *call) const {
        std::vector<Expr> arguments = call->args;
        for (const size_t operand :
             call->name == kWarpgroupMemoryCall ? std::vector<size_t>{6, 8} : std::vector<size_t>{6}) {
            const std::string *tile = tile_at(arguments[operand], UInt(8));
            if (!tile) {
                std::ostringstream text;
                text << "a matrix for a warpgroup is in no tile: " << arguments[operand];
                throw std::runtime_error(text.str());
            }
            arguments[operand] = simplify(moved(arguments[operand], 1, *tile, false));
        }
        return Call::make(call->type, call->name, arguments, call->call_type);
    }

    Expr visit(const Call *call) override {
        if (call->name == kWarpgroupMemoryCall || call->name == kWarpgroupRegistersCall) {
            return SharedAccesses::visit(with_addresses_moved(call).as<Call>());
        }
        if (call->name != kMatrixLoadCall && call->name != kTransposedLoadCall) {
            return SharedAccesses::visit(call);
        }
        const std::string *tile = tile_at(call->args[0], UInt(8));
        if (!tile) {
            return call;
        }
        return Call::make(call->type, call->name, {moved(call->args[0], 1, *tile, false)}, call->call_type);
    }

    const Tiles &tiles_;
    const StageRanges all_;
    std::map<std::string, Expr> threads_;  // loops over them, at 0
};

}  // namespace

Expr exchanged_by(const Expr &bytes, int row_bytes, const Scope<Interval> &bounds) {
    const Expr bits = exchanged_bits(bytes, row_bytes, bounds);
    const Expr before = simplify(bytes / kBlock % blocks_exchanged(row_bytes), true, bounds) * kBlock;
    return Call::make(bits.type(), Call::bitwise_xor, {before, bits}, Call::PureIntrinsic) - before;
}

Stmt ExchangedBlocks::visit(const Allocate *allocation) {
    if (allocation->memory_type != MemoryType::GPUShared || tiles_.rows.empty()) {
        return IRMutator::visit(allocation);
    }
    std::set<std::string> stages;
    for (const auto &[stage, rows] : tiles_.rows) {
        stages.insert(stage);
    }
    StageRanges all = ranges_of_stages(allocation->body, allocation->name, "", stages);
    for (const auto &[stage, rows] : tiles_.rows) {
        const int buffers = stage == tiles_.first ? 1 : tiles_.buffers;
        all.at(stage).end = all.at(stage).first + int64_t{buffers} * rows * tiles_.row_bytes - tiles_.padding_bytes;
    }
    return allocated_for(allocation, Exchange(tiles_, allocation->name, all).mutate(allocation->body));
}

}  // namespace hattn::schedules::cuda
