#include "thin_barriers.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

void ThinBarriers::touch(const std::string &array) {
    is_ordered_ = is_ordered_ && registers_.count(array) != 0;
}

// What runs again, or in some threads, is looked at by itself.
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
    is_ordered_ = false;
    Stmt result = IRMutator::visit(branch);
    is_ordered_ = false;
    return result;
}

Stmt ThinBarriers::visit(const Allocate *allocation) {
    if (allocation->memory_type == MemoryType::Register) {
        registers_.insert(allocation->name);
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
    is_ordered_ = is_ordered_ && call->is_pure();
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
