// A lowering pass: from a kernel that computes one tile to a launch that computes many.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::gpu {

// What of a kernel's arguments differs from one unit of a launch to the next. Each is a column of the launch's table of
// units, a row of which is a record of 32-bit integers (runtime/device/unit_record.h).
struct UnitColumns {
    int count = 0;                       // columns of the table
    bool grow = false;                   // whether columns may grow, see columns_grow()
    std::map<std::string, int> values;   // scalar arguments, and extents like "query.extent.1"
    std::map<std::string, int> offsets;  // buffers: where the unit's part starts, in elements
    // Of the buffers, float32 ones that a unit may be without: where its part starts below 0, all there is is -inf.
    std::set<std::string> optional = {};
};

// The table: of every unit's row the columns that are listed, and where the others start and how they grow; where
// columns do not grow, the first unit's row before that (runtime/device/packed_units.h).
struct DeviceUnits {
    explicit DeviceUnits(int columns);
    std::vector<Halide::Argument> arguments() const;

    Halide::ImageParam table{Halide::Int(32), 1, "units"};
    Halide::Param<int> inner{"unit_inner"}, middle{"unit_middle"}, outer{"unit_outer"};  // how units follow each other
    Halide::Param<int> turned{"unit_turned"};  // of the outermost ones, that start in reverse
    Halide::Param<int> listed{"unit_listed"};  // bit c: column c is listed
    std::vector<Halide::Param<int>> first;     // of each column, the first unit's
    std::vector<Halide::Param<int>> steps;     // of each column, to the next inner, middle, outer unit
};

// The pipeline's loop over blocks, of one tile, becomes three over the units of a launch: block n takes every value
// from row n, or computes it. So kernels are written for one tile everywhere, and the runtime says which.
class UnitLaunch : public Halide::Internal::IRMutator {
public:
    UnitLaunch(const DeviceUnits &units, UnitColumns columns) : units_(units), columns_(std::move(columns)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::IfThenElse *branch) override;
    Halide::Expr visit(const Halide::Internal::Load *load) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override;

    bool differs(const Halide::Expr &value) const;
    Halide::Expr column(int index, const std::string &block) const;
    Halide::Expr shifted(const std::string &buffer, const Halide::Expr &index) const;

    DeviceUnits units_;
    UnitColumns columns_;
    std::vector<std::pair<std::string, Halide::Expr>> moved_;  // lets that go into the loop over blocks
    bool in_block_ = false;
};

}  // namespace hattn::schedules::gpu
