#include "shared_stages.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

Stmt SharedAccesses::visit(const For *loop) {
    const Interval first = bounds_of_expr_in_scope(loop->min, bounds_);
    const Interval last = bounds_of_expr_in_scope(loop->min + loop->extent - 1, bounds_);
    const ScopedBinding<Interval> bound(bounds_, loop->name, Interval(simplify(first.min), simplify(last.max)));
    const ScopedValue<bool> inside(inside_, inside_ || loop->name == loop_);
    return IRMutator::visit(loop);
}

Stmt SharedAccesses::visit(const LetStmt *let) {
    const ScopedBinding<Interval> bound(bounds_, let->name, bounds_of_expr_in_scope(let->value, bounds_));
    return IRMutator::visit(let);
}

Expr SharedAccesses::visit(const Let *let) {
    const ScopedBinding<Interval> bound(bounds_, let->name, bounds_of_expr_in_scope(let->value, bounds_));
    return IRMutator::visit(let);
}

Stmt SharedAccesses::visit(const ProducerConsumer *stage) {
    const ScopedValue<bool> inside(inside_, inside_ || (stage->is_producer && others_.count(stage->name)));
    if (inside_) {
        stages_.push_back(stage);
    }
    Stmt result = IRMutator::visit(stage);
    if (inside_) {
        stages_.pop_back();
    }
    return result;
}

ByteRange SharedAccesses::range_of(const Expr &index, Type type) const {
    const Interval bounds = bounds_of_expr_in_scope(index, bounds_);
    const auto constant = [&](const Expr &e) {
        const Expr simple = e.defined() ? simplify(e) : e;
        const auto value = simple.defined() ? as_const_int(simple) : std::nullopt;
        if (!value) {
            std::ostringstream text;
            text << "shared memory is indexed without bounds: " << index;
            throw std::runtime_error(text.str());
        }
        return *value;
    };
    return {constant(bounds.min) * type.bytes(), (constant(bounds.max) + 1) * type.bytes()};
}

const ProducerConsumer *SharedAccesses::producer() const {
    const auto found =
        std::find_if(stages_.rbegin(), stages_.rend(), [](const auto *stage) { return stage->is_producer; });
    return found == stages_.rend() ? nullptr : *found;
}

namespace {

class StoredRanges : public SharedAccesses {
public:
    using SharedAccesses::SharedAccesses;
    StageRanges found;

private:
    using SharedAccesses::visit;

    Stmt visit(const Store *store) override {
        if (inside_ && store->name == array_) {
            const ProducerConsumer *stage = producer();
            if (!stage) {
                throw std::runtime_error("a store into shared memory is of no stage");
            }
            const ByteRange range = range_of(store->index, store->value.type());
            const auto [known, is_new] = found.try_emplace(stage->name, range);
            known->second = {std::min(known->second.first, range.first), std::max(known->second.end, range.end)};
        }
        return SharedAccesses::visit(store);
    }
};

class Move : public SharedAccesses {
public:
    Move(const std::string &array, const std::string &loop, const StageRanges &all, const StageRanges &moved,
         int64_t bytes)
        : SharedAccesses(array, loop), all_(all), moved_(moved), bytes_(bytes) {}

private:
    using SharedAccesses::visit;

    // Which of the stages around an access is of: those are all in use, and so in different places. Bounds may be wider
    // than what is accessed, where some threads do nothing: at their end, which the numbers of threads come to.
    int64_t elements(const Expr &index, Type type) const {
        const ByteRange range = range_of(index, type);
        std::set<std::string> touched, beginning;
        for (const ProducerConsumer *stage : stages_) {
            if (const auto found = all_.find(stage->name); found != all_.end() && found->second.overlaps(range)) {
                touched.insert(stage->name);
                if (found->second.contains({range.first, range.first + 1})) {
                    beginning.insert(stage->name);
                }
            }
        }
        const std::set<std::string> &candidates = touched.size() > 1 ? beginning : touched;
        if (!touched.empty() && candidates.size() != 1) {
            std::ostringstream text;
            text << "shared memory is that of several stages: " << index;
            throw std::runtime_error(text.str());
        }
        return !candidates.empty() && moved_.count(*candidates.begin()) != 0 ? bytes_ / type.bytes() : 0;
    }

    Stmt visit(const Store *store) override {
        if (!inside_ || store->name != array_) {
            return SharedAccesses::visit(store);
        }
        const int64_t by = elements(store->index, store->value.type());
        return Store::make(store->name, mutate(store->value), store->index + static_cast<int>(by), store->param,
                           mutate(store->predicate), store->alignment + ModulusRemainder(0, by));
    }

    Expr visit(const Load *load) override {
        if (!inside_ || load->name != array_) {
            return SharedAccesses::visit(load);
        }
        const int64_t by = elements(load->index, load->type);
        return Load::make(load->type, load->name, load->index + static_cast<int>(by), load->image, load->param,
                          mutate(load->predicate), load->alignment + ModulusRemainder(0, by));
    }

    const StageRanges &all_, &moved_;
    const int64_t bytes_;
};

}  // namespace

StageRanges ranges_of_stages(const Stmt &statement, const std::string &array, const std::string &loop,
                             const std::set<std::string> &used) {
    StoredRanges ranges(array, loop, used);
    ranges.mutate(statement);
    return ranges.found;
}

Stmt move_stages(const Stmt &statement, const std::string &array, const std::string &loop, const StageRanges &all,
                 const StageRanges &moved, int64_t bytes) {
    return Move(array, loop, all, moved, bytes).mutate(statement);
}

}  // namespace hattn::schedules::cuda
