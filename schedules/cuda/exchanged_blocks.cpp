#include "exchanged_blocks.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "matrix_calls.h"
#include "shared_stages.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kBlock = 16, kBanks = 128;  // bytes

class Exchange : public SharedAccesses {
public:
    Exchange(const Tiles &tiles, const std::string &array, StageRanges all)
        : SharedAccesses(array, ""), tiles_(tiles), all_(std::move(all)) {
        inside_ = true;
    }

private:
    using SharedAccesses::visit;

    // Of elements of so many bytes, in a tile that begins at `first`. Vectors are within a block.
    Expr moved(const Expr &index, int bytes, int64_t first) const {
        const Expr simple = simplify(index, true, bounds_);
        if (const Ramp *ramp = simple.as<Ramp>()) {
            return Ramp::make(moved(ramp->base, bytes, first), ramp->stride, ramp->lanes);
        }
        const int begin = static_cast<int>(first) / bytes;
        const Expr in_tile = simplify((simple - begin) * bytes, true, bounds_);
        return simple + exchanged_by(in_tile, tiles_.row_bytes, bounds_) / bytes;
    }

    Stmt visit(const Store *store) override {
        const ProducerConsumer *stage = store->name == array_ ? producer() : nullptr;
        if (!stage || !tiles_.rows.count(stage->name)) {
            return SharedAccesses::visit(store);
        }
        return Store::make(store->name, mutate(store->value),
                           moved(store->index, store->value.type().bytes(), all_.at(stage->name).first), store->param,
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
            text << "rows of a tile are read without ldmatrix: " << Expr(load);
            throw std::runtime_error(text.str());
        }
        return SharedAccesses::visit(load);
    }

    Expr visit(const Call *call) override {
        if (call->name != kMatrixLoadCall && call->name != kTransposedLoadCall) {
            return SharedAccesses::visit(call);
        }
        const std::string *tile = tile_at(call->args[0], UInt(8));
        if (!tile) {
            return call;
        }
        return Call::make(call->type, call->name, {moved(call->args[0], 1, all_.at(*tile).first)}, call->call_type);
    }

    const Tiles &tiles_;
    const StageRanges all_;
};

}  // namespace

Expr exchanged_by(const Expr &bytes, int row_bytes, const Scope<Interval> &bounds) {
    const int step = row_bytes & -row_bytes;
    const int blocks = std::min(step, kBanks) / kBlock;  // that change places
    const Expr row = simplify(bytes / std::max(step, kBanks) % blocks, true, bounds);
    const Expr block = simplify(bytes / kBlock % blocks, true, bounds);
    const Expr other = Call::make(block.type(), Call::bitwise_xor, {block, row}, Call::PureIntrinsic);
    return (other - block) * kBlock;
}

Stmt ExchangedBlocks::visit(const Allocate *allocation) {
    if (allocation->memory_type != MemoryType::GPUShared || tiles_.rows.empty()) {
        return IRMutator::visit(allocation);
    }
    StageRanges all = ranges_of_stages(allocation->body, allocation->name, "", tiles_.rows);
    for (const std::string &tile : tiles_.rows) {
        all.at(tile).end = all.at(tile).first + tiles_.tile_bytes;
    }
    return Allocate::make(allocation->name, allocation->type, allocation->memory_type, allocation->extents,
                          allocation->condition, Exchange(tiles_, allocation->name, all).mutate(allocation->body),
                          allocation->new_expr, allocation->free_function, allocation->padding);
}

}  // namespace hattn::schedules::cuda
