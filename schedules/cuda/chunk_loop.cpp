#include "chunk_loop.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

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

}  // namespace

bool is_barrier(const Evaluate *statement) {
    const Call *found = statement->value.as<Call>();
    return found && found->is_intrinsic(Call::gpu_thread_barrier);
}

void LoopOf::visit(const For *loop) {
    const bool is_serial = loop->for_type == ForType::Serial;
    const ScopedValue<const For *> around(around_, is_serial ? loop : around_);
    const ScopedValue<std::set<std::string>> used_around(used_around_, is_serial ? consumed_ : used_around_);
    IRVisitor::visit(loop);
}

void LoopOf::visit(const ProducerConsumer *stage) {
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

bool uses(const Stmt &statement, const std::string &stage) {
    Uses search(stage);
    statement.accept(&search);
    return search.found;
}

Stmt without_last_barriers(const Stmt &body, const std::string &shared) {
    return WithoutLastBarriers(shared).mutate(body);
}

}  // namespace hattn::schedules::cuda
