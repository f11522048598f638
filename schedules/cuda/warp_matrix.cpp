#include "warp_matrix.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "generators/number_formats.h"
#include "matrix_calls.h"
#include "matrix_nest.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kSmallest = 8;  // rows and columns of what ldmatrix loads, elements of 16 bits

using Operand = std::vector<Expr>;  // registers of two elements each

// Where ldmatrix finds its four matrices of 8 x 8: a lane gives the address of row lane % 8 of matrix lane / 8, of
// which elements lie side by side.
struct Rows {
    Expr index;  // of the first element
    bool transposed = false;
};

bool is_aligned(const Expr &index) {
    const ModulusRemainder alignment = modulus_remainder(index);
    return alignment.modulus % kSmallest == 0 && alignment.remainder % kSmallest == 0;
}

// One run of nests, one after the other, in the same memory: what they load is loaded once.
class Run {
public:
    Run(std::vector<Nest> nests, std::vector<Stmt> between, const std::string &lane, const std::string &shared)
        : nests_(std::move(nests)),
          between_(std::move(between)),
          lane_name_(lane),
          lane_(Variable::make(Int(32), lane)),
          shared_(shared) {}

    Stmt calls() {
        std::vector<Stmt> products;
        std::vector<size_t> loaded;  // before each product
        for (size_t i = 0; i < nests_.size(); ++i) {
            const Operand a = operand_a(nests_[i]);
            const Operand b = operand_b(i);
            loaded.push_back(loads_.size());
            products.push_back(product(nests_[i], a, b));
        }
        Stmt result;
        for (size_t i = nests_.size(); i-- > 0;) {
            result = result.defined() ? Block::make(products[i], result) : products[i];
            for (size_t n = loaded[i]; n-- > (i > 0 ? loaded[i - 1] : 0);) {
                result = LetStmt::make(loads_[n].name, loads_[n].value, result);
            }
            if (between_[i].defined()) {
                result = Block::make(between_[i], result);
            }
        }
        return result;
    }

private:
    struct Loaded {
        std::string name;
        Rows rows;
        Expr value;
    };

    Operand operand_a(const Nest &nest) {
        const Expr apart = at(nest.a->index, {{nest.sum, 1}}) - at(nest.a->index, {{nest.sum, 0}});
        const Rows rows = {at(nest.a->index, {{lane_name_, lane_ % kSmallest * 4},
                                              {nest.half, lane_ / kSmallest % 2},
                                              {nest.sum, lane_ / (2 * kSmallest) * kSmallest}})};
        if (nest.a->name == shared_ && is_const_one(simplify(apart)) && is_aligned(rows.index)) {
            return registers(fragments(rows), 0, 4);
        }
        return registers_of_a(nest, lane_);
    }

    // Index of element (k, n) of B: lane 4 * n computes column n with matrix_column = n % 2 of thread n / 2.
    Expr index_b(const Nest &nest, const Expr &k, const Expr &n) const {
        return at(nest.b->index, {{lane_name_, n / 2}, {nest.column, n % 2}, {nest.sum, k}});
    }

    // The two 8 x 8 matrices of B, by lanes in halves of the warp.
    std::optional<Rows> rows_b(const Nest &nest) const {
        const auto apart = [&](int k, int n) {
            return as_const_int(simplify(index_b(nest, k, n) - index_b(nest, 0, 0)));
        };
        const Expr row = lane_ % kSmallest, upper = lane_ / kSmallest % 2 * kSmallest;
        Rows rows;
        if (nest.b->name != shared_) {
            return {};
        }
        if (apart(1, 0) == 1) {
            rows = {index_b(nest, upper, row), false};
        } else if (apart(0, 1) == 1 && apart(0, 2) == 2 && apart(0, kSmallest - 1) == kSmallest - 1) {
            rows = {index_b(nest, upper + row, 0), true};
        } else {
            return {};
        }
        return is_aligned(rows.index) ? std::optional(rows) : std::nullopt;
    }

    // Those of a nest and the next are loaded together.
    Operand operand_b(size_t i) {
        if (const auto found = second_b_.find(i); found != second_b_.end()) {
            return registers(found->second, 2, 2);
        }
        const Nest &nest = nests_[i];
        if (const std::optional<Rows> own = rows_b(nest)) {
            const std::optional<Rows> next = i + 1 < nests_.size() ? rows_b(nests_[i + 1]) : std::nullopt;
            Rows both = *own;
            if (next && next->transposed == own->transposed) {
                both.index = simplify(own->index + lane_ / (2 * kSmallest) * simplify(next->index - own->index));
            }
            const std::string name = fragments(both);
            if (next && next->transposed == own->transposed) {
                second_b_[i + 1] = name;
            }
            return registers(name, 0, 2);
        }
        const Expr pair = lane_ % 4 * 2;
        Operand operand;
        for (int upper = 0; upper < 2; ++upper) {
            const Expr k = pair + kSmallest * upper;
            operand.push_back(pair_of(nest.b, index_b(nest, k, lane_ / 4), index_b(nest, k + 1, lane_ / 4)));
        }
        return operand;
    }

    // The name of four registers, which may be there already.
    std::string fragments(const Rows &rows) {
        for (const Loaded &load : loads_) {
            if (load.rows.transposed == rows.transposed && equal(load.rows.index, rows.index)) {
                return load.name;
            }
        }
        const Expr bytes = simplify(rows.index * 2);
        const Expr call =
            Call::make(UInt(128), rows.transposed ? kTransposedLoadCall : kMatrixLoadCall, {bytes}, Call::Extern);
        loads_.push_back({unique_name("fragments"), rows, Halide::reinterpret(UInt(32, 4), call)});
        return loads_.back().name;
    }

    static Operand registers(const std::string &fragments, int first, int count) {
        Operand operand;
        for (int i = first; i < first + count; ++i) {
            operand.push_back(Shuffle::make_extract_element(Variable::make(UInt(32, 4), fragments), i));
        }
        return operand;
    }

    // Operands in the order of the instruction: which elements of A, B and the product a lane holds.
    static Stmt product(const Nest &nest, const Operand &a, const Operand &b) {
        std::vector<Expr> elements, arguments;
        for (int half = 0; half < 2; ++half) {
            for (int column = 0; column < 2; ++column) {
                elements.push_back(at(nest.index, {{nest.half, half}, {nest.column, column}}));
                arguments.push_back(Load::make(Float(32), nest.product, elements.back(), Buffer<>(), Parameter(),
                                               const_true(), ModulusRemainder()));
            }
        }
        arguments.insert(arguments.end(), a.begin(), a.end());
        arguments.insert(arguments.end(), b.begin(), b.end());
        const Expr call =
            Call::make(UInt(128), nest.is_bfloat16 ? kBfloat16Call : kFloat16Call, arguments, Call::PureExtern);
        const std::string result = unique_name("matrix_product");
        std::vector<Stmt> stores;
        for (int i = 0; i < 4; ++i) {
            const Expr element = Shuffle::make_extract_element(Variable::make(Float(32, 4), result), i);
            stores.push_back(Store::make(nest.product, element, elements[static_cast<size_t>(i)], Parameter(),
                                         const_true(), ModulusRemainder()));
        }
        return LetStmt::make(result, Halide::reinterpret(Float(32, 4), call), Block::make(stores));
    }

    const std::vector<Nest> nests_;
    const std::vector<Stmt> between_;  // before each nest, where there is something
    const std::string lane_name_;
    const Expr lane_;
    const std::string shared_;
    std::vector<Loaded> loads_;
    std::map<size_t, std::string> second_b_;  // of nests, loaded with the nest before
};

}  // namespace

Stmt WarpMatrix::multiply(const std::vector<Stmt> &loops, const std::vector<Stmt> &between) {
    std::vector<Nest> nests;
    for (const Stmt &loop : loops) {
        const std::optional<Nest> nest = match_nest(loop.as<For>());
        if (!nest || lane_.empty()) {
            std::ostringstream text;
            text << "no product of matrices for a warp:\n" << loop;
            throw std::runtime_error(text.str());
        }
        nests.push_back(*nest);
    }
    if (warpgroups_) {
        return warpgroup_products(nests, between, {lane_, warp_}, shared_, *warpgroups_, groups_);
    }
    return Run(std::move(nests), between, lane_, shared_).calls();
}

Stmt WarpMatrix::visit(const For *loop) {
    if (loop->for_type == ForType::GPUThread) {
        threads_.insert(loop->name);
        if (ends_with(loop->name, ".thread_id_x")) {
            lane_ = is_const(loop->extent, kWarp) ? loop->name : "";
        } else if (ends_with(loop->name, ".thread_id_y")) {
            warp_ = loop->name;
        }
    }
    return ends_with(loop->name, kMatrixSum) ? multiply({loop}, {Stmt()}) : IRMutator::visit(loop);
}

Stmt WarpMatrix::visit(const Block *block) {
    std::vector<Stmt> run, between;
    Stmt rest = block, other;
    while (rest.defined()) {
        const Block *both = rest.as<Block>();
        const Stmt first = both ? both->first : rest;
        if (const Stmt nest = nest_in(first); nest.defined()) {
            run.push_back(nest);
            between.push_back(other);
            other = Stmt();
        } else if (both && !run.empty() && is_copy(first)) {
            const Stmt copy = mutate(first);
            other = other.defined() ? Block::make(other, copy) : copy;
        } else {
            break;
        }
        rest = both ? both->rest : Stmt();
    }
    if (run.empty()) {
        return IRMutator::visit(block);
    }
    if (other.defined() && warpgroups_) {
        between.push_back(other);
        other = Stmt();
    }
    Stmt products = multiply(run, between);
    if (other.defined()) {
        products = Block::make(products, other);
    }
    return rest.defined() ? Block::make(products, mutate(rest)) : products;
}

Stmt WarpMatrix::visit(const Allocate *allocation) {
    if (allocation->memory_type == MemoryType::GPUShared) {
        if (!shared_.empty()) {
            throw std::runtime_error("shared memory is in more than one piece");
        }
        shared_ = allocation->name;
    }
    return IRMutator::visit(allocation);
}

Expr WarpMatrix::visit(const Cast *cast) {
    const Call *bits = cast->value.as<Call>();
    if (cast->type != UInt(16, 2) || !bits || bits->name != generators::kBfloat16BitsCall) {
        return IRMutator::visit(cast);
    }
    const Expr numbers = mutate(bits->args[0]);
    return Halide::reinterpret(
        cast->type, Call::make(UInt(32), kBfloat16PairCall,
                               {Shuffle::make_extract_element(numbers, 0), Shuffle::make_extract_element(numbers, 1)},
                               Call::PureExtern));
}

// Values made of a thread's coordinates go where they are used, so that indices show them.
Stmt WarpMatrix::visit(const LetStmt *let) {
    const auto used = [&](const std::string &thread) { return expr_uses_var(let->value, thread); };
    if (is_pure(let->value) && std::any_of(threads_.begin(), threads_.end(), used)) {
        return mutate(substitute(let->name, let->value, let->body));
    }
    return IRMutator::visit(let);
}

}  // namespace hattn::schedules::cuda
