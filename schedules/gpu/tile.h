// Tile parameters of a device kernel. A work group computes one tile with (rows / thread_rows) x slices threads,
// each of them as many times as there are groups of keys.
#pragma once

namespace hattn::schedules::gpu {

struct Tile {
    int rows = 0;         // query rows of a tile
    int keys = 0;         // per chunk
    int head = 0;         // head elements, of keys and of values, that fit
    int slices = 0;       // threads that share a row: each has keys / slices scores and head / slices output elements
    int thread_rows = 0;  // rows of a thread
    int unroll = 8;       // of both products, along what they sum over
    int key_groups = 0;   // threads of a slice that share the keys of a chunk; 0: none, each has all keys
    int blocks = 0;       // of a kernel with key_groups, that a multiprocessor is to have at once; 0: as many as may be
    int head_unroll = 0;  // of the first product, along the head, where that is another
    // Products on tensor cores by four warps together, which capability 9.0 alone has: wgmma (PTX ISA). Then `blocks`
    // is as with key_groups.
    bool warpgroups = false;
    int buffers = 1;  // of warpgroups: of keys and of values, 2: those of the next chunk come while this one's are used

    // Of a work group.
    int threads() const {
        return slices * (key_groups > 0 ? key_groups : rows / thread_rows);
    }
};

}  // namespace hattn::schedules::gpu
