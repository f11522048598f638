// Rows of an append as they lie in a cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kv_cache.h"

namespace hattn {

// Rows of one sequence that lie one after the other in a page.
struct Run {
    int64_t sequence, row, rows;  // of the tensors appended
    int64_t page, at;             // of the storage
};

// Calls visit(run) for rows [begin, end) of the `count` that a sequence is given; of a ring, which keeps the last rows
// only, for those.
template<typename Visit>
void for_each_run(const hattn_kv_cache &cache, int64_t sequence, int64_t begin, int64_t end, int64_t count,
                  Visit visit) {
    Run run{};
    run.sequence = sequence;
    run.row = std::max(begin, cache.ring() ? count - cache.page_rows() : 0);
    for (; run.row < end; run.row += run.rows) {
        const int64_t position = cache.lengths[static_cast<size_t>(sequence)] + run.row;
        run.page = cache.page_of(sequence, position);
        run.at = cache.row_of(position);
        run.rows = std::min(end - run.row, cache.page_rows() - run.at);
        visit(run);
    }
}

}  // namespace hattn
