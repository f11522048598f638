// Which bytes of a block's shared memory stages have, after Halide has made one array of all.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "Halide.h"

namespace hattn::schedules::cuda {

struct ByteRange {
    int64_t first = 0, end = 0;

    bool overlaps(const ByteRange &other) const {
        return first < other.end && other.first < end;
    }
    bool contains(const ByteRange &other) const {
        return first <= other.first && other.end <= end;
    }
};

// By the name of the stage.
using StageRanges = std::map<std::string, ByteRange>;

// Knows the bounds of variables, and what stages there are around what it visits, within a loop and within some stages.
class SharedAccesses : public Halide::Internal::IRMutator {
public:
    SharedAccesses(std::string array, std::string loop, std::set<std::string> others = {})
        : array_(std::move(array)), loop_(std::move(loop)), others_(std::move(others)) {}

protected:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Expr visit(const Halide::Internal::Let *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::ProducerConsumer *stage) override;

    // Of an access of elements of a type.
    ByteRange range_of(const Halide::Expr &index, Halide::Type type) const;

    // Whose value is being computed; null: none's.
    const Halide::Internal::ProducerConsumer *producer() const;

    const std::string array_, loop_;
    const std::set<std::string> others_;  // stages outside the loop that are looked at as well
    bool inside_ = false;
    std::vector<const Halide::Internal::ProducerConsumer *> stages_;
    Halide::Internal::Scope<Halide::Internal::Interval> bounds_;
};

// What the stages within a loop store into the array, and those outside that are used throughout it. Throws
// std::runtime_error where that is not a range between constants.
StageRanges ranges_of_stages(const Halide::Internal::Stmt &statement, const std::string &array, const std::string &loop,
                             const std::set<std::string> &used);

// Stages within the loop have their memory so many bytes further on.
Halide::Internal::Stmt move_stages(const Halide::Internal::Stmt &statement, const std::string &array,
                                   const std::string &loop, const StageRanges &all, const StageRanges &moved,
                                   int64_t bytes);

}  // namespace hattn::schedules::cuda
