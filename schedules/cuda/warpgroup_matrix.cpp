#include "warpgroup_matrix.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "warpgroup_calls.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

constexpr int kWarpsOfGroup = 4;
constexpr int kNestDepth = 16, kNestColumns = 8;

Stmt warpgroup_call(const char *name, std::vector<Expr> arguments = {}) {
    return Evaluate::make(Call::make(Int(32), name, std::move(arguments), Call::Extern));
}

// What is added up in the same four elements of a thread.
struct Sums {
    std::vector<Expr> elements;       // in the order of the instruction
    std::vector<const Nest *> steps;  // along what is summed over
};
// Those of an instruction, by its tiles.
using Group = std::vector<Sums>;

// Whether a statement touches an array.
class Touches : public IRVisitor {
public:
    explicit Touches(const std::string &array) : array_(array) {}
    bool found = false;

private:
    using IRVisitor::visit;

    void visit(const Load *load) override {
        found = found || load->name == array_;
        IRVisitor::visit(load);
    }

    void visit(const Store *store) override {
        found = found || store->name == array_;
        IRVisitor::visit(store);
    }

    const std::string &array_;
};

class Products {
public:
    Products(const WarpLoops &loops, const std::string &shared, const WarpgroupMatrices &matrices)
        : loops_(loops), shared_(shared), matrices_(matrices) {}

    void take(const Nest &nest) {
        std::vector<Expr> elements;
        for (int half = 0; half < 2; ++half) {
            for (int column = 0; column < 2; ++column) {
                elements.push_back(at(nest.index, {{nest.half, half}, {nest.column, column}}));
            }
        }
        for (Group &group : groups_) {
            for (Sums &sums : group) {
                if (equal(sums.elements[0], elements[0])) {
                    sums.steps.push_back(&nest);
                    return;
                }
            }
        }
        const auto same_rows = [&](const Group &group) {
            return equal(first_of_a(*group[0].steps[0]), first_of_a(nest));
        };
        auto group = std::ranges::find_if(groups_, same_rows);
        if (group == groups_.end()) {
            group = groups_.insert(groups_.end(), Group());
        }
        group->push_back({elements, {&nest}});
    }

    Stmt calls(const std::vector<Stmt> &between, int first_group) const {
        std::vector<Stmt> all;
        for (size_t i = 0; i < groups_.size(); ++i) {
            for (size_t tile = 0; tile < groups_[i].size(); ++tile) {
                std::vector<Expr> arguments = {first_group + static_cast<int>(i), static_cast<int>(tile)};
                for (const Expr &element : groups_[i][tile].elements) {
                    arguments.push_back(Load::make(Float(32), product_of(groups_[i]), element, Buffer<>(), Parameter(),
                                                   const_true(), ModulusRemainder()));
                }
                all.push_back(warpgroup_call(kWarpgroupSumsCall, arguments));
            }
        }
        all.push_back(warpgroup_call(kWarpgroupFenceCall));
        for (size_t i = 0; i < groups_.size(); ++i) {
            all.push_back(products(groups_[i], first_group + static_cast<int>(i)));
        }
        all.push_back(warpgroup_call(kWarpgroupCommitCall));
        for (const Stmt &other : between) {
            Touches sums(product_of(groups_[0]));
            other.accept(&sums);
            if (sums.found) {
                throw std::runtime_error("what is between products of a warpgroup uses their sums: " +
                                         product_of(groups_[0]));
            }
        }
        all.insert(all.end(), between.begin(), between.end());
        all.push_back(warpgroup_call(kWarpgroupWaitCall, {0}));
        for (size_t i = 0; i < groups_.size(); ++i) {
            for (size_t tile = 0; tile < groups_[i].size(); ++tile) {
                all.push_back(results(groups_[i], first_group + static_cast<int>(i), static_cast<int>(tile)));
            }
        }
        return Block::make(all);
    }

    int groups() const {
        return static_cast<int>(groups_.size());
    }

private:
    [[noreturn]] static void fail(const char *what, const Expr &index) {
        std::ostringstream text;
        text << "no product of matrices for a warpgroup: " << what << ": " << index;
        throw std::runtime_error(text.str());
    }

    static const std::string &product_of(const Group &group) {
        return group[0].steps[0]->product;
    }

    // Of A, for the first lane of a warp.
    Expr index_a(const Nest &nest, const Expr &lane, const Expr &half, const Expr &k) const {
        return at(nest.a->index, {{loops_.lane, lane}, {nest.half, half}, {nest.sum, k}});
    }

    Expr first_of_a(const Nest &nest) const {
        return index_a(nest, 0, 0, 0);
    }

    // Of B: lane 4 * n computes column n, with matrix_column = n % 2 of thread n / 2.
    Expr index_b(const Nest &nest, int k, int n) const {
        return at(nest.b->index, {{loops_.lane, n / 2}, {nest.column, n % 2}, {nest.sum, k}});
    }

    static void require_apart(const char *what, const Expr &index, const Expr &first, int elements) {
        if (!is_const(simplify(index - first), elements)) {
            fail(what, index);
        }
    }

    // Whether rows of B, as they lie, are what is summed over; else its columns are.
    bool is_over_rows(const Group &group) const {
        const Nest &first = *group[0].steps[0];
        const Expr begin = index_b(first, 0, 0);
        const bool over_rows = !is_const_one(simplify(index_b(first, 1, 0) - begin));
        const int row = matrices_.row_elements, of_k = over_rows ? row : 1, of_n = over_rows ? 1 : row;
        if (first.b->name != shared_) {
            fail("B is not in shared memory", begin);
        }
        for (size_t tile = 0; tile < group.size(); ++tile) {
            for (size_t step = 0; step < group[tile].steps.size(); ++step) {
                const Nest &nest = *group[tile].steps[step];
                const int apart =
                    static_cast<int>(step) * kNestDepth * of_k + static_cast<int>(tile) * kNestColumns * of_n;
                require_apart("B", index_b(nest, 0, 0), begin, apart);
                require_apart("rows of B", index_b(nest, 1, 0), begin, apart + of_k);
                require_apart("columns of B", index_b(nest, 0, 1), begin, apart + of_n);
            }
        }
        return over_rows;
    }

    // Where the warpgroup's rows begin.
    Expr a_in_memory(const Group &group) const {
        const Expr begin = first_of_a(*group[0].steps[0]);
        for (size_t step = 0; step < group[0].steps.size(); ++step) {
            const Nest &nest = *group[0].steps[step];
            const int apart = static_cast<int>(step) * kNestDepth;
            require_apart("A", first_of_a(nest), begin, apart);
            require_apart("columns of A", index_a(nest, 0, 0, 1), begin, apart + 1);
            require_apart("rows of A", index_a(nest, 4, 0, 0), begin, apart + matrices_.row_elements);
            require_apart("halves of A", index_a(nest, 0, 1, 0), begin, apart + kNestColumns * matrices_.row_elements);
        }
        const Expr warp = Variable::make(Int(32), loops_.warp);
        require_apart("warps of A", at(begin, {{loops_.warp, 1}}), at(begin, {{loops_.warp, 0}}),
                      kNestDepth * matrices_.row_elements);
        return matrices_.threads == kWarpsOfGroup * 32
                   ? at(begin, {{loops_.warp, 0}})
                   : at(begin, {{loops_.warp, warp / kWarpsOfGroup * kWarpsOfGroup}});
    }

    Stmt products(const Group &group, int number) const {
        const Nest &first = *group[0].steps[0];
        const auto tiles = static_cast<int>(group.size()), steps = static_cast<int>(group[0].steps.size());
        const bool over_rows = is_over_rows(group);
        const int b_rows = over_rows ? steps * kNestDepth : tiles * kNestColumns;
        std::vector<Expr> arguments = {
            number, tiles, steps, first.is_bfloat16 ? 1 : 0, over_rows ? 1 : 0, b_rows, index_b(first, 0, 0) * 2};
        if (first.a->name == shared_) {
            arguments.emplace_back(matrices_.a_rows);
            arguments.push_back(a_in_memory(group) * 2);
            return warpgroup_call(kWarpgroupMemoryCall, arguments);
        }
        for (const Nest *nest : group[0].steps) {
            const std::vector<Expr> registers = registers_of_a(*nest, Variable::make(Int(32), loops_.lane));
            arguments.insert(arguments.end(), registers.begin(), registers.end());
        }
        return warpgroup_call(kWarpgroupRegistersCall, arguments);
    }

    static Stmt results(const Group &group, int number, int tile) {
        const std::string name = unique_name("matrix_product");
        const Expr result = Call::make(UInt(128), kWarpgroupResultCall, {number, tile}, Call::Extern);
        std::vector<Stmt> stores;
        for (int i = 0; i < 4; ++i) {
            const Expr element = Shuffle::make_extract_element(Variable::make(Float(32, 4), name), i);
            stores.push_back(Store::make(product_of(group), element, group[tile].elements[i], Parameter(), const_true(),
                                         ModulusRemainder()));
        }
        return LetStmt::make(name, Halide::reinterpret(Float(32, 4), result), Block::make(stores));
    }

    const WarpLoops loops_;
    const std::string shared_;
    const WarpgroupMatrices matrices_;
    std::vector<Group> groups_;
};

}  // namespace

Stmt warpgroup_products(const std::vector<Nest> &nests, const std::vector<Stmt> &between, const WarpLoops &loops,
                        const std::string &shared, const WarpgroupMatrices &matrices, int &groups) {
    Products products(loops, shared, matrices);
    for (const Nest &nest : nests) {
        products.take(nest);
    }
    std::vector<Stmt> others;
    std::ranges::copy_if(between, std::back_inserter(others), [](const Stmt &stmt) { return stmt.defined(); });
    Stmt result = products.calls(others, groups);
    groups += products.groups();
    return result;
}

}  // namespace hattn::schedules::cuda
