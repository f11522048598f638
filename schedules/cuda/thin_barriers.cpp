#include "thin_barriers.h"

#include "matrix_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

void ThinBarriers::touch(const std::string &array) {
    is_ordered_ = is_ordered_ && shared_.count(array) == 0;
}

// What runs again is looked at by itself.
Stmt ThinBarriers::visit(const For *loop) {
    if (loop->for_type == ForType::GPUThread || loop->for_type == ForType::GPUBlock) {
        return IRMutator::visit(loop);
    }
    is_ordered_ = false;
    Stmt result = IRMutator::visit(loop);
    is_ordered_ = false;
    return result;
}

Stmt ThinBarriers::visit(const IfThenElse *branch) {
    Expr condition = mutate(branch->condition);
    const bool is_ordered_before = is_ordered_;
    Stmt then_case = mutate(branch->then_case);
    const bool is_ordered_then = is_ordered_;
    is_ordered_ = is_ordered_before;
    Stmt else_case = branch->else_case.defined() ? mutate(branch->else_case) : Stmt();
    is_ordered_ = is_ordered_ && is_ordered_then;
    return IfThenElse::make(condition, then_case, else_case);
}

Stmt ThinBarriers::visit(const ProducerConsumer *stage) {
    const bool is_early = stage->is_producer && early_.is_early(stage->name);
    const bool is_ordered_before = is_ordered_;
    Stmt result = IRMutator::visit(stage);
    is_ordered_ = is_early ? is_ordered_before : is_ordered_;
    return result;
}

Stmt ThinBarriers::visit(const Allocate *allocation) {
    if (allocation->memory_type == MemoryType::GPUShared) {
        shared_.insert(allocation->name);
    }
    return IRMutator::visit(allocation);
}

Stmt ThinBarriers::visit(const Store *store) {
    Stmt result = IRMutator::visit(store);
    touch(store->name);
    return result;
}

Expr ThinBarriers::visit(const Load *load) {
    Expr result = IRMutator::visit(load);
    touch(load->name);
    return result;
}

Expr ThinBarriers::visit(const Call *call) {
    Expr result = IRMutator::visit(call);
    is_ordered_ = is_ordered_ && (call->is_pure() || call->name == kCommitCall);
    return result;
}

Stmt ThinBarriers::visit(const Evaluate *statement) {
    const Call *call = statement->value.as<Call>();
    if (!call || !call->is_intrinsic(Call::gpu_thread_barrier)) {
        return IRMutator::visit(statement);
    }
    if (is_ordered_) {
        return Evaluate::make(0);
    }
    is_ordered_ = true;
    return statement;
}

}  // namespace hattn::schedules::cuda
