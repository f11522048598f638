// A lowering pass: what stands between the products of small matrices is computed while others are multiplied.
#pragma once

#include <string>

#include "Halide.h"

namespace hattn::schedules::x86 {

// The loop over bands of rows.
inline constexpr const char *kBandLoop = "bands";

// A call of this name stands where matrix_tiles.h leaves room among products.
inline constexpr const char *kRoomCall = "hattn_room_among_products";

// Names of Funcs: terms of weights, whose loop goes into such rooms; parts of their sums, which it stores too; blocks
// of keys before the first that a band sees; what the state is multiplied by, and the state.
struct BandStages {
    std::string weights, pair_sums, unseen, rescale, state;
    bool adds_in_place = false;  // weighted values to the state
    Halide::Expr filled;         // bands that have rows, at least one
};

// AMX multiplies on its own: a product starts once in sixteen cycles, and between two of them both vector units are
// idle. But a core looks no further ahead than some hundred instructions, so that loops one after the other take the
// sum of their times, and loops that are mixed hardly more than the longer one.
//
// A band goes through scores, their maxima, weights, weighted values. Only what is short stays between products:
//
//     for each band i that has rows, and two more
//         scores(i)              with half of weights(i-1), or more
//         weighted values(i-2)   with the rest of weights(i-1), state(i-3)
//         sums(i-1), maxima(i)
//     state of the last band
//
// or, if products are added to the state where it lies (sums_in_place.h), without state(i-3) and
//
//         state(i-2) multiplied  if a reference of it has moved, before its weighted values
//
// each as far as there is such a band; of the first and the last band some weights have no products beside them.
// "With" means: passes of the loop are dealt evenly to the rooms among products. Where no product is computed, since no
// row sees a key, they come one after the other. Weights are those that products read, and are added up as they are
// computed (sums_at_once.h): of keys that a band does not see there are none.
//
// Where Halide's profiler tells stages apart, they stay apart.
//
// What is stored of a band while that of the one before is read is there twice; all that a band allocates moves out of
// the loop. Loops over bands in which stages are in another order are refused, as an error says.
class OverlappedBands : public Halide::Internal::IRMutator {
public:
    explicit OverlappedBands(BandStages stages) : stages_(std::move(stages)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;
    Halide::Internal::Stmt visit(const Halide::Internal::Evaluate *evaluate) override;

    const BandStages stages_;
};

}  // namespace hattn::schedules::x86
