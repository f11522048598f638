#include "aligned_blocks.h"

namespace hattn::schedules::gpu {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kFloats = 4;

bool is_block(const Type &type) {
    return type == Float(32, kFloats);
}

}  // namespace

Expr AlignedBlocks::visit(const Load *load) {
    if (!is_block(load->type)) {
        return IRMutator::visit(load);
    }
    return Load::make(load->type, load->name, simplify(mutate(load->index)), load->image, load->param,
                      mutate(load->predicate), ModulusRemainder(kFloats, 0));
}

Stmt AlignedBlocks::visit(const Store *store) {
    if (!is_block(store->value.type())) {
        return IRMutator::visit(store);
    }
    return Store::make(store->name, mutate(store->value), simplify(mutate(store->index)), store->param,
                       mutate(store->predicate), ModulusRemainder(kFloats, 0));
}

}  // namespace hattn::schedules::gpu
