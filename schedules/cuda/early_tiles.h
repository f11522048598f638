// A lowering pass: tiles of keys and values on their way into shared memory while others are multiplied.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "Halide.h"
#include "warpgroup_matrix.h"
#include "wide_output.h"

namespace hattn::schedules::cuda {

// Stages that bring rows into shared memory in every chunk.
struct Tiles {
    std::string next;  // the tile for the next chunk is asked for when this chunk's has been multiplied
    std::string now;   // is asked for when the chunk's `next` is there, and waited for where it is used; empty: none
    std::set<std::string> exchanged = {};  // values in registers that neighbouring threads read
    // Stages of rows whose blocks change places (exchanged_blocks.h), and how many rows each has, of so many bytes with
    // the padding between them.
    std::map<std::string, int> rows = {};
    int row_bytes = 0, padding_bytes = 0;
    std::optional<WarpgroupMatrices> warpgroups = {};  // for whose instructions these rows are
    int buffers = 1;         // of `next` and of `now`, chunks take turns in them; with `spread_before`
    std::string first = {};  // a tile that is brought once before the loop, and waited for with the first `next`
    // With `now`: copies of the one tile are started one by one, among products of the other. Before this stage, of
    // values in registers, `now` is waited for. Empty: not so.
    std::string spread_before = {};
    StoredRows stored = {};  // see wide_output.h
    std::string rare = {};   // a stage whose conditional steps are skipped together, see rare_steps.h

    bool is_early(const std::string &stage) const {
        return stage == next || stage == now || stage == first;
    }
};

// Reorders the loop over chunks. As Halide has it, a stage, a barrier, and what uses it follow each other:
//
//     for chunk: now(chunk); barrier; next(chunk); barrier; ... use next; barrier; ... use now; barrier
//
// afterwards
//
//     next(0)
//     for chunk: wait for next; barrier; now(chunk); ... use next; barrier; next(chunk + 1); ... wait for now; barrier;
//     use now
//     barrier
//
// where a wait is for copies that a thread has started itself (matrix_calls.h; wide_rows.h makes them, and other stores
// are done when they are), and the barrier behind it for those of other threads. Memory of `next` is in use all the
// time, so what Halide has put there within the loop moves to where no stage is that is used in it. Comes before
// warp_matrix.h and thin_barriers.h; throws std::runtime_error where the loop is not as above.
//
// With `spread_before`, where all that is computed between is in registers, copies go among products (spread_copies.h),
// and two barriers are left:
//
//     for chunk: wait for next; barrier; use next, among it now(chunk); ... wait for now; barrier; that stage; ...
//     use now, among it next(chunk + 1)
//
// and with two buffers (overlaid_tiles.h) one is, with a whole chunk's time for what is on its way:
//
//     next(0); now(0)
//     for chunk: wait for both; barrier; use next, among it next(chunk + 1) and now(chunk + 1); ... use now
class EarlyTiles : public Halide::Internal::IRMutator {
public:
    explicit EarlyTiles(Tiles tiles) : tiles_(std::move(tiles)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;

    const Tiles tiles_;
};

}  // namespace hattn::schedules::cuda
