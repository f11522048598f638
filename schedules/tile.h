// Tile parameters of a kernel. A schedule reads those it needs; the autotuner's space is made of them.
#pragma once

namespace hattn::schedules {

struct Tile {
    int rows = 0;         // query rows of a tile
    int keys = 0;         // keys per chunk; 0: all keys at once
    int row_vectors = 1;  // vectors of rows held in registers (rows in lanes), or rows (head in lanes)
    int key_unroll = 1;   // keys per block of the score loop
    int value_unroll =
        1;  // head elements per block of the value loop (rows in lanes), or vectors of them (head in lanes)

    bool operator==(const Tile &) const = default;
};

}  // namespace hattn::schedules
