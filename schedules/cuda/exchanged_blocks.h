// A lowering pass: where blocks of a row of keys or values lie in shared memory.
#pragma once

#include "Halide.h"
#include "early_tiles.h"

namespace hattn::schedules::cuda {

// ldmatrix reads a block of 16 bytes from each of eight rows at once, which have to lie in different banks. Rows with a
// block of padding do, but then every other row begins in the middle of a sector of 32 bytes, and a copy (cp.async)
// that puts one sector into two asks for it twice. Either rows lie close together, and blocks change places within 128
// bytes (within 64 where rows are an odd multiple of that): in rows of 128 or 256 bytes, say, block b of row r is at
// b ^ (r % 8). Or rows have a sector of padding, which is there where row_bytes is an odd number of sectors: then four
// rows are in different banks, and in the next four the two blocks of each sector change places: block b of row r is at
// b ^ (r / 4 % 2). There what ldmatrix reads has one address for a whole tile, and constants added to it.
//
// Tiles for a warpgroup (tiles.warpgroups) lie as its instructions want them, see warpgroup_layout.h.
//
// For stages that tiles.rows names; runs behind warp_matrix.h, and before wide_rows.h. Throws std::runtime_error where
// anything but ldmatrix and these reads them.
class ExchangedBlocks : public Halide::Internal::IRMutator {
public:
    explicit ExchangedBlocks(Tiles tiles) : tiles_(std::move(tiles)) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::Allocate *allocation) override;

    const Tiles tiles_;
};

// By how many bytes what would be at so many bytes of a tile moves, if variables are within bounds.
Halide::Expr exchanged_by(const Halide::Expr &bytes, int row_bytes,
                          const Halide::Internal::Scope<Halide::Internal::Interval> &bounds);

}  // namespace hattn::schedules::cuda
