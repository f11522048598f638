#include "general_ends.h"

namespace hattn::schedules::simd {

using namespace Halide;
using namespace Halide::Internal;

namespace {

// What Halide appends to the name of a loop that it lets begin at zero, as those do that come after others.
const std::string kLater = ".rebased";

bool is_later(const std::string &loop) {
    return loop.ends_with(kLater);
}

// The name that a loop and its end share, of those that this is about.
std::string shared_name(const std::string &loop) {
    const std::string name = is_later(loop) ? loop.substr(0, loop.size() - kLater.size()) : loop;
    for (const char *kind : {kKeyBlockLoop, kPassLoop}) {
        if (name.ends_with(std::string(".") + kind)) {
            return name;
        }
    }
    return {};
}

std::map<std::string, int> count_ends(const Stmt &statement) {
    class Ends : public IRVisitor {
    public:
        std::map<std::string, int> count;

    private:
        using IRVisitor::visit;

        void visit(const For *loop) override {
            count[shared_name(loop->name)] += is_later(loop->name) ? 1 : -1;
            IRVisitor::visit(loop);
        }
    };
    Ends ends;
    statement.accept(&ends);
    return ends.count;
}

// Whether heads of keys or values have so many elements, or a multiple of them. Other extents say what is computed: a
// bias may have one key for all.
bool is_size_of_head(const Expr &condition) {
    const EQ *equal = condition.as<EQ>();
    if (!equal || !is_const(equal->b)) {
        return false;
    }
    const Mod *multiple = equal->a.as<Mod>();
    const Variable *extent = (multiple && is_const(multiple->b) ? multiple->a : equal->a).as<Variable>();
    return extent &&
           (extent->name == "key.extent.0" || extent->name == "value.extent.0" || extent->name == "output.extent.0");
}

}  // namespace

Stmt GeneralEnds::mutate(const Stmt &statement) {
    if (!counted_) {
        counted_ = true;
        ends_ = count_ends(statement);
    }
    return IRMutator::mutate(statement);
}

Stmt GeneralEnds::visit(const For *loop) {
    const std::string name = shared_name(loop->name);
    const bool is_end = !name.empty() && is_later(loop->name) && ends_.at(name) <= 0;
    const ScopedValue<bool> scoped(in_end_, in_end_ || is_end);
    return IRMutator::visit(loop);
}

Stmt GeneralEnds::visit(const LetStmt *let) {
    const ScopedBinding<Expr> binding(let->value.type().is_bool(), named_, let->name, let->value);
    return IRMutator::visit(let);
}

Stmt GeneralEnds::visit(const IfThenElse *branches) {
    const Variable *name = branches->condition.as<Variable>();
    const Expr condition = name && named_.contains(name->name) ? named_.get(name->name) : branches->condition;
    return in_end_ && branches->else_case.defined() && is_size_of_head(condition) ? mutate(branches->else_case)
                                                                                  : IRMutator::visit(branches);
}

}  // namespace hattn::schedules::simd
