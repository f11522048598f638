#include "early_tiles.h"

#include <algorithm>
#include <set>
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
    std::set<std::string> used;  // stages that are used throughout the loop

private:
    using IRVisitor::visit;

    void visit(const For *loop) override {
        const bool is_serial = loop->for_type == ForType::Serial;
        const ScopedValue<const For *> around(around_, is_serial ? loop : around_);
        const ScopedValue<std::set<std::string>> used_around(used_around_, is_serial ? consumed_ : used_around_);
        IRVisitor::visit(loop);
    }

    void visit(const ProducerConsumer *stage) override {
        if (stage->is_producer && stage->name == stage_) {
            found = around_;
            used = used_around_;
        }
        const bool is_new = !stage->is_producer && consumed_.insert(stage->name).second;
        IRVisitor::visit(stage);
        if (is_new) {
            consumed_.erase(stage->name);
        }
    }

    const std::string &stage_;
    const For *around_ = nullptr;
    std::set<std::string> consumed_, used_around_;  // by what is around; around that loop
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

// Barriers behind the last access to shared memory in the body of the loop go, where every chunk begins with one, as
// does what follows the loop.
class WithoutLastBarriers : public IRMutator {
public:
    explicit WithoutLastBarriers(const std::string &shared) : shared_(shared) {}

private:
    using IRMutator::visit;

    Stmt visit(const Block *block) override {
        Stmt rest = mutate(block->rest);
        return Block::make(is_last_ ? mutate(block->first) : block->first, rest);
    }

    Stmt visit(const For *loop) override {
        is_last_ = false;
        return loop;
    }

    Stmt visit(const Evaluate *statement) override {
        return is_last_ && is_barrier(statement) ? Evaluate::make(0) : IRMutator::visit(statement);
    }

    Stmt visit(const Store *store) override {
        is_last_ = is_last_ && store->name != shared_;
        return IRMutator::visit(store);
    }

    Expr visit(const Load *load) override {
        is_last_ = is_last_ && load->name != shared_;
        return IRMutator::visit(load);
    }

    const std::string &shared_;
    bool is_last_ = true;
};

class Reorder : public IRMutator {
public:
    Reorder(Tiles tiles, std::string loop, std::string shared)
        : tiles_(std::move(tiles)), loop_(std::move(loop)), shared_(std::move(shared)) {}

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
        if (const For *reordered = result.as<For>(); begins_with_barrier_) {
            result = For::make(reordered->name, reordered->min, reordered->extent, reordered->for_type,
                               reordered->partition_policy, reordered->device_api,
                               WithoutLastBarriers(shared_).mutate(reordered->body));
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
            now_ = Block::make(stage, call(kCommitCall));
            return Evaluate::make(0);
        }
        begins_with_barrier_ = begins_with_barrier_ && tile_.defined();
        Stmt result = IRMutator::visit(stage);
        if (tile_.defined() && uses(stage->body, tiles_.next)) {
            if (is_used_) {
                fail(stage->name);
            }
            is_used_ = skips_barrier_ = true;
            result = Block::make({result, barrier(), next_tile(Variable::make(Int(32), loop_) + 1, end_)});
        }
        if (now_.defined() && uses(stage->body, tiles_.now)) {
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
        const Stmt wait = Block::make(call(kWaitCall, {0}), barrier());
        return now_.defined() ? Block::make(wait, now_) : wait;
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
    const std::string loop_, shared_;
    Expr end_;                                        // of the loop, within it
    std::vector<std::pair<std::string, Expr>> lets_;  // in the loop, around the statement at hand
    Stmt tile_;                                       // of `next`
    bool begins_with_barrier_ = true;                 // a chunk, but for what is asked for behind it
    bool is_used_ = false;                            // `next`
    Stmt now_;                                        // how `now` is asked for
    bool is_now_used_ = false;
    bool skips_barrier_ = false;  // the next one
    bool needs_barrier_ = false;  // before anything but `next`
};

// Where so many bytes are that none of the stages has.
int64_t first_gap(const StageRanges &stages, int64_t bytes) {
    int64_t gap = 0;
    for (bool is_free = false; !is_free;) {
        is_free = true;
        for (const auto &[stage, range] : stages) {
            if (range.overlaps({gap, gap + bytes})) {
                gap = (range.end + kAlignment - 1) / kAlignment * kAlignment;
                is_free = false;
            }
        }
    }
    return gap;
}

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
    const StageRanges all = ranges_of_stages(allocation->body, allocation->name, loop, search.used);
    const ByteRange &tile = all.at(tiles_.next);
    StageRanges moved, others;
    ByteRange piece{tile.end, tile.first};  // of those that move
    for (const auto &[stage, range] : all) {
        if (stage != tiles_.next && range.overlaps(tile)) {
            moved[stage] = range;
            piece = {std::min(piece.first, range.first / kAlignment * kAlignment), std::max(piece.end, range.end)};
        } else {
            others[stage] = range;
        }
    }
    const int64_t bytes = allocation->type.bytes();
    Stmt body = allocation->body;
    Expr size = allocation->extents[0];
    if (!moved.empty()) {
        const int64_t by = first_gap(others, piece.end - piece.first) - piece.first;
        body = move_stages(body, allocation->name, loop, all, moved, by);
        size = static_cast<int>(std::max(*elements, (piece.end + by + bytes - 1) / bytes));
    }
    return Allocate::make(allocation->name, allocation->type, allocation->memory_type, {size}, allocation->condition,
                          Reorder(tiles_, loop, allocation->name).mutate(body), allocation->new_expr,
                          allocation->free_function, allocation->padding);
}

}  // namespace hattn::schedules::cuda
