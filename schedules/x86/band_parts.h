// What a loop over bands says, for overlapped_bands.h.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "Halide.h"
#include "overlapped_bands.h"

namespace hattn::schedules::x86 {

[[noreturn]] void cannot_overlap(const char *what, const Halide::Internal::Stmt &statement);

bool is_room(const Halide::Internal::Call *call);

class Contents : public Halide::Internal::IRVisitor {
public:
    explicit Contents(const Halide::Internal::Stmt &statement) {
        statement.accept(this);
    }

    bool loops = false, sums = false;
    int rooms = 0;
    std::set<std::string> products;  // arrays that these are stored in

private:
    using IRVisitor::visit;

    void visit(const Halide::Internal::For *loop) override;
    void visit(const Halide::Internal::Allocate *allocation) override;
    void visit(const Halide::Internal::Call *call) override;
};

// One of the statements of a band.
struct Part {
    Halide::Internal::Stmt statement;
    Halide::Expr condition;  // or undefined

    const Halide::Internal::For *loop() const {
        return statement.as<Halide::Internal::For>();
    }
};

Halide::Internal::Stmt only_if(const Halide::Expr &condition, const Halide::Internal::Stmt &statement);

// Statements one after the other, by what they are, and what is allocated for them.
class Band {
public:
    Band(const Halide::Internal::For *loop, const BandStages &stages);

    // Sums of weights are `zeroed` before these. The state is added to by `state`, or `rescaled` before the values are
    // added to it: the other one is undefined.
    Part scores, weights, values, zeroed, state, rescaled;
    std::vector<Part> maxima, sums;

    // Of weights, the first pass that products read, and the first one behind these.
    std::pair<Halide::Expr, Halide::Expr> seen_passes(const Halide::Expr &band) const;

    // Of a band with this number.
    Part of(const Part &part, const Halide::Expr &band) const;
    Halide::Internal::Stmt statement_of(const Part &part, const Halide::Expr &band) const;
    Halide::Internal::Stmt all_of(const std::vector<Part> &parts, const Halide::Expr &band) const;

    // The allocations around a statement made of such.
    Halide::Internal::Stmt allocated(Halide::Internal::Stmt statement) const;

private:
    template<typename T>
    T in_band(const T &code, const Halide::Expr &band) const;

    void read(const Halide::Internal::Stmt &statement, const Halide::Expr &condition);
    void take_roles(const BandStages &stages);
    void take_seen(const std::string &unseen);
    void take_sums(const std::string &pair_sums);
    void double_arrays(const std::set<std::string> &arrays);

    const Halide::Internal::For *loop_;
    Halide::Expr first_block_, blocks_;  // of keys, whose products are added up
    std::vector<Part> parts_;
    std::vector<Halide::Internal::Stmt> allocations_;
    std::map<std::string, Halide::Expr> doubled_;  // sizes of arrays that are there twice, in elements
};

}  // namespace hattn::schedules::x86
