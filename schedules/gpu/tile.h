// Tile parameters of a device kernel. A work group computes one tile with (rows / thread_rows) x slices threads.
#pragma once

namespace hattn::schedules::gpu {

struct Tile {
    int rows = 0;         // query rows of a tile
    int keys = 0;         // per chunk
    int head = 0;         // head elements, of keys and of values, that fit
    int slices = 0;       // threads that share a row: each has keys / slices scores and head / slices output elements
    int thread_rows = 0;  // rows of a thread
    int unroll = 8;       // of both products, along what they sum over
};

}  // namespace hattn::schedules::gpu
