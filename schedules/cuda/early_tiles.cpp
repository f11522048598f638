#include "early_tiles.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "matrix_calls.h"
#include "shared_stages.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int64_t kAlignment = 16;  // bytes

Stmt call(const char *name, std::vector<Expr> arguments = {}) {
    return Evaluate::make(Call::make(Int(32), name, std::move(arguments), Call::Extern));
}

Stmt barrier() {
    return Evaluate::make(Call::make(Int(32), Call::gpu_thread_barrier, {0}, Call::Intrinsic));
}

bool is_barrier(const Evaluate *statement) {
    const Call *found = statement->value.as<Call>();
    return found && found->is_intrinsic(Call::gpu_thread_barrier);
}

// The loop in which a stage is produced.
class LoopOf : public IRVisitor {
public:
    explicit LoopOf(const std::string &stage) : stage_(stage) {}
    const For *found = nullptr;

private:
    using IRVisitor::visit;

    void visit(const For *loop) override {
        const ScopedValue<const For *> around(around_, loop->for_type == ForType::Serial ? loop : around_);
        IRVisitor::visit(loop);
    }

    void visit(const ProducerConsumer *stage) override {
        found = stage->is_producer && stage->name == stage_ ? around_ : found;
        IRVisitor::visit(stage);
    }

    const std::string &stage_;
    const For *around_ = nullptr;
};

class Uses : public IRVisitor {
public:
    explicit Uses(const std::string &stage) : stage_(stage) {}
    bool found = false;

private:
    using IRVisitor::visit;

    void visit(const ProducerConsumer *stage) override {
        found = found || (!stage->is_producer && stage->name == stage_);
        IRVisitor::visit(stage);
    }

    const std::string &stage_;
};

bool uses(const Stmt &statement, const std::string &stage) {
    Uses search(stage);
    statement.accept(&search);
    return search.found;
}

class Reorder : public IRMutator {
public:
    Reorder(Tiles tiles, std::string loop) : tiles_(std::move(tiles)), loop_(std::move(loop)) {}

private:
    using IRMutator::visit;

    [[noreturn]] void fail(const std::string &stage) const {
        throw std::runtime_error("stages of the loop over chunks are in an unknown order: " + stage);
    }

    // Of a chunk, if there is one.
    Stmt next_tile(const Expr &chunk, const Expr &end) const {
        const Stmt tile = substitute(loop_, chunk, tile_);
        return Block::make(IfThenElse::make(chunk < end, ProducerConsumer::make_produce(tiles_.next, tile)),
                           call(kCommitCall));
    }

    Stmt visit(const For *loop) override {
        if (loop->name != loop_) {
            return IRMutator::visit(loop);
        }
        end_ = loop->min + loop->extent;
        Stmt result = IRMutator::visit(loop);
        if (!is_used_ || is_now_used_ != !tiles_.now.empty() || skips_barrier_ || needs_barrier_) {
            fail(tiles_.next + " " + tiles_.now);
        }
        return Block::make(next_tile(loop->min, end_), result);
    }

    Stmt visit(const LetStmt *let) override {
        if (!end_.defined()) {
            return IRMutator::visit(let);
        }
        lets_.emplace_back(let->name, let->value);
        Stmt result = IRMutator::visit(let);
        lets_.pop_back();
        return result;
    }

    Stmt visit(const ProducerConsumer *stage) override {
        if (!end_.defined() || !stage->is_producer) {
            return IRMutator::visit(stage);
        }
        if (stage->name == tiles_.next) {
            return wait_for_next(stage);
        }
        if (skips_barrier_ || needs_barrier_) {
            fail(stage->name);
        }
        if (stage->name == tiles_.now) {
            skips_barrier_ = needs_barrier_ = true;
            is_now_started_ = true;
            return Block::make(stage, call(kCommitCall));
        }
        Stmt result = IRMutator::visit(stage);
        if (tile_.defined() && uses(stage->body, tiles_.next)) {
            if (is_used_) {
                fail(stage->name);
            }
            is_used_ = skips_barrier_ = true;
            result = Block::make({result, barrier(), next_tile(Variable::make(Int(32), loop_) + 1, end_)});
        }
        if (is_now_started_ && uses(stage->body, tiles_.now)) {
            if (!is_used_ || is_now_used_) {
                fail(stage->name);
            }
            is_now_used_ = true;
            result = Block::make({call(kWaitCall, {1}), barrier(), result});  // all but that of the next chunk
        }
        return result;
    }

    Stmt wait_for_next(const ProducerConsumer *stage) {
        if (tile_.defined() || skips_barrier_) {
            fail(stage->name);
        }
        tile_ = stage->body;
        for (size_t i = lets_.size(); i-- > 0;) {
            tile_ = substitute(lets_[i].first, lets_[i].second, tile_);
        }
        needs_barrier_ = false;
        return Block::make(call(kWaitCall, {is_now_started_ ? 1 : 0}), barrier());
    }

    // What has been started is waited for before the barrier that there was for it.
    Stmt visit(const Evaluate *statement) override {
        if (skips_barrier_ && is_barrier(statement)) {
            skips_barrier_ = false;
            return Evaluate::make(0);
        }
        return IRMutator::visit(statement);
    }

    const Tiles tiles_;
    const std::string loop_;
    Expr end_;                                        // of the loop, within it
    std::vector<std::pair<std::string, Expr>> lets_;  // in the loop, around the statement at hand
    Stmt tile_;                                       // of `next`
    bool is_used_ = false;                            // `next`
    bool is_now_started_ = false, is_now_used_ = false;
    bool skips_barrier_ = false;  // the next one
    bool needs_barrier_ = false;  // before anything but `next`
};

}  // namespace

Stmt EarlyTiles::visit(const Allocate *allocation) {
    if (allocation->memory_type != MemoryType::GPUShared) {
        return IRMutator::visit(allocation);
    }
    LoopOf search(tiles_.next);
    allocation->body.accept(&search);
    const auto elements = as_const_int(simplify(allocation->extents.at(0)));
    if (!search.found || allocation->extents.size() != 1 || !elements) {
        throw std::runtime_error("there is no loop over chunks, or no array: " + tiles_.next);
    }
    const std::string loop = search.found->name;
    const StageRanges all = ranges_of_stages(allocation->body, allocation->name, loop);
    const ByteRange &tile = all.at(tiles_.next);
    StageRanges moved;
    int64_t first = tile.end, end = tile.first;
    for (const auto &[stage, range] : all) {
        if (stage != tiles_.next && range.overlaps(tile)) {
            moved[stage] = range;
            first = std::min(first, range.first / kAlignment * kAlignment);
            end = std::max(end, range.end);
        }
    }
    const int64_t bytes = allocation->type.bytes();
    const int64_t behind = (*elements * bytes + kAlignment - 1) / kAlignment * kAlignment;
    Stmt body = allocation->body;
    Expr size = allocation->extents[0];
    if (!moved.empty()) {
        body = move_stages(body, allocation->name, loop, all, moved, behind - first);
        size = static_cast<int>((behind - first + end + bytes - 1) / bytes);
    }
    return Allocate::make(allocation->name, allocation->type, allocation->memory_type, {size}, allocation->condition,
                          Reorder(tiles_, loop).mutate(body), allocation->new_expr, allocation->free_function,
                          allocation->padding);
}

}  // namespace hattn::schedules::cuda
