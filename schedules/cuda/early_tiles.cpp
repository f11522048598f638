#include "early_tiles.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "chunk_loop.h"
#include "matrix_calls.h"
#include "shared_stages.h"
#include "spread_copies.h"

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

// What produces a stage in a loop, without the lets around it there.
class ProducedIn : public IRVisitor {
public:
    ProducedIn(const std::string &loop, const std::string &stage) : loop_(loop), stage_(stage) {}
    Stmt found;

private:
    using IRVisitor::visit;

    void visit(const For *loop) override {
        const ScopedValue<bool> inside(inside_, inside_ || loop->name == loop_);
        IRVisitor::visit(loop);
    }

    void visit(const LetStmt *let) override {
        const size_t around = lets_.size();
        if (inside_) {
            lets_.emplace_back(let->name, let->value);
        }
        IRVisitor::visit(let);
        lets_.resize(around);
    }

    void visit(const ProducerConsumer *stage) override {
        if (stage->is_producer && stage->name == stage_) {
            found = stage->body;
            for (size_t i = lets_.size(); i-- > 0;) {
                found = substitute(lets_[i].first, lets_[i].second, found);
            }
        }
        IRVisitor::visit(stage);
    }

    const std::string &loop_, &stage_;
    bool inside_ = false;
    std::vector<std::pair<std::string, Expr>> lets_;
};

class Reorder : public IRMutator {
public:
    Reorder(Tiles tiles, std::string loop, std::string shared, const Stmt &body)
        : tiles_(std::move(tiles)), loop_(std::move(loop)), shared_(std::move(shared)) {
        if (spreads()) {
            ProducedIn search(loop_, tiles_.now);
            body.accept(&search);
            now_ = search.found;
        }
    }

private:
    using IRMutator::visit;

    [[noreturn]] void fail(const std::string &stage) const {
        throw std::runtime_error("stages of the loop over chunks are in an unknown order: " + stage);
    }

    // Of a chunk, if there is one.
    Stmt next_tile(const Expr &chunk, const Expr &end) const {
        const auto produced = [&](const std::string &name, const Stmt &tile) {
            return ProducerConsumer::make_produce(name, substitute(loop_, chunk, tile));
        };
        Stmt tiles = produced(tiles_.next, tile_);
        if (is_ahead()) {
            tiles = Block::make(tiles, produced(tiles_.now, now_));
        }
        return Block::make(IfThenElse::make(chunk < end, tiles), call(kCommitCall));
    }

    // Both tiles are of the next chunk, when they are asked for.
    bool is_ahead() const {
        return tiles_.buffers > 1;
    }

    Stmt visit(const For *loop) override {
        if (loop->name != loop_) {
            return IRMutator::visit(loop);
        }
        end_ = loop->min + loop->extent;
        Stmt result = IRMutator::visit(loop);
        is_in_registers_ = false;
        if (!is_used_ || is_now_used_ != !tiles_.now.empty() || skips_barrier_ || needs_barrier_) {
            fail(tiles_.next + " " + tiles_.now);
        }
        if (const For *reordered = result.as<For>(); begins_with_barrier_) {
            result = For::make(reordered->name, reordered->min, reordered->extent, reordered->for_type,
                               reordered->partition_policy, reordered->device_api,
                               without_last_barriers(reordered->body, shared_));
        }
        result = Block::make(next_tile(loop->min, end_), result);
        // Of the first tile, where there is no chunk. What follows the loop begins with a barrier.
        return tiles_.first.empty() ? result : Block::make(result, call(kWaitCall, {0}));
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
            skips_barrier_ = true;
            needs_barrier_ = !tile_.defined();
            now_ = spreads() ? now_ : Block::make(stage, call(kCommitCall));
            return Evaluate::make(0);
        }
        begins_with_barrier_ = begins_with_barrier_ && tile_.defined();
        Stmt result = IRMutator::visit(stage);
        if (tile_.defined() && uses(stage->body, tiles_.next)) {
            if (is_used_) {
                fail(stage->name);
            }
            is_used_ = true;
            skips_barrier_ = !spreads();
            result = spreads() ? with_copies_of_now(result)
                               : Block::make({result, barrier(), next_tile(next_chunk(), end_)});
        }
        if (stage->name == tiles_.spread_before) {
            if (!is_used_) {
                fail(stage->name);
            }
            is_in_registers_ = is_ahead();
            result = is_ahead() ? result : wait_for_now(result);
        }
        if (now_.defined() && uses(stage->body, tiles_.now)) {
            if (!is_used_ || is_now_used_) {
                fail(stage->name);
            }
            is_now_used_ = true;
            if (!spreads()) {
                result = Block::make({call(kWaitCall, {1}), barrier(), result});  // all but that of the next chunk
            } else if (next_copies_.single.empty()) {
                fail(stage->name);
            } else {
                const Stmt late = tiles_.warpgroups && !is_ahead() ? next_copies_.others : Evaluate::make(0);
                result =
                    Block::make({among_products(result, tiles_.now, next_copies_.single), late, call(kCommitCall)});
            }
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
        is_in_registers_ = spreads();
        const Stmt wait = Block::make(call(kWaitCall, {0}), barrier());
        return now_.defined() && !spreads() ? Block::make(wait, now_) : wait;
    }

    Expr next_chunk() const {
        return Variable::make(Int(32), loop_) + 1;
    }

    bool spreads() const {
        return !tiles_.spread_before.empty();
    }

    // What uses `next`.
    Stmt with_copies_of_now(const Stmt &user) {
        if (is_ahead()) {
            const TileCopies next = next_copies(tiles_.next, tile_), now = next_copies(tiles_.now, now_);
            next_copies_ = now;
            return Block::make({next.others, now.others, among_products(user, tiles_.next, next.single)});
        }
        const TileCopies copies = copies_of_tile(tiles_.now, now_, const_true());
        return Block::make({copies.others, among_products(user, tiles_.next, copies.single), call(kCommitCall)});
    }

    // Of the next chunk's tile, if there is one.
    TileCopies next_copies(const std::string &name, const Stmt &tile) const {
        return copies_of_tile(name, substitute(loop_, next_chunk(), tile), next_chunk() < end_);
    }

    // The barrier is for both: `now` is there, and `next` has been multiplied.
    Stmt wait_for_now(const Stmt &stage) {
        next_copies_ = next_copies(tiles_.next, tile_);
        // For a warpgroup they come when there are no weights any more: less is in registers.
        const Stmt others = tiles_.warpgroups ? Evaluate::make(0) : next_copies_.others;
        return Block::make({call(kWaitCall, {0}), barrier(), others, stage});
    }

    // What has been started is waited for before the barrier that there was for it.
    Stmt visit(const Evaluate *statement) override {
        if ((skips_barrier_ || is_in_registers_) && is_barrier(statement)) {
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
    TileCopies next_copies_;        // for the next chunk
    bool skips_barrier_ = false;    // the next one
    bool needs_barrier_ = false;    // before anything but `next`
    bool is_in_registers_ = false;  // what is computed, between the waits of copies that are spread
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
                          Reorder(tiles_, loop, allocation->name, body).mutate(body), allocation->new_expr,
                          allocation->free_function, allocation->padding);
}

}  // namespace hattn::schedules::cuda
