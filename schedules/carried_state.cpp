#include "carried_state.h"

#include <stdexcept>

namespace hattn::schedules {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// Which element of a Tuple an array holds, as text; empty if it is of another Func. Halide numbers arrays of a work
// group behind that.
std::string element_of(const std::string &array, const std::string &func) {
    const std::string prefix = func + ".";
    return array.starts_with(prefix) ? array.substr(prefix.size(), array.find('.', prefix.size()) - prefix.size()) : "";
}

}  // namespace

Stmt CarriedState::visit(const Allocate *allocation) {
    if (!element_of(allocation->name, before_).empty()) {
        return mutate(allocation->body);
    }
    if (const std::string element = element_of(allocation->name, state_); !element.empty()) {
        arrays_[element] = allocation->name;
    }
    return IRMutator::visit(allocation);
}

Stmt CarriedState::visit(const Free *freed) {
    return element_of(freed->name, before_).empty() ? IRMutator::visit(freed) : Evaluate::make(0);
}

Expr CarriedState::visit(const Load *load) {
    const std::string element = element_of(load->name, before_);
    if (element.empty()) {
        return IRMutator::visit(load);
    }
    const auto array = arrays_.find(element);
    if (array == arrays_.end()) {
        throw std::runtime_error(load->name + " is read where there is no " + state_);
    }
    return Load::make(load->type, array->second, load->index, load->image, load->param, mutate(load->predicate),
                      load->alignment);
}

}  // namespace hattn::schedules
