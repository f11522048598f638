// Ragged rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace hattn {

// Which rows of a tensor [B, heads, rows, dim] belong to each sequence: the leading ones; or packed ones, of a tensor
// [1, heads, rows, dim], in which those of sequence b end where ends[b + 1] says.
struct RowCounts {
    const int32_t *lengths;  // null: all
    int64_t rows;
    const int32_t *ends = nullptr;  // not null: packed

    int64_t of(int64_t sequence) const {
        if (ends) {
            return int64_t{ends[sequence + 1]} - ends[sequence];
        }
        return lengths ? lengths[sequence] : rows;
    }
    // Of the longest one: tensors of any size may hold no more rows than lengths say.
    int64_t most(int64_t batch) const {
        int64_t found = 0;
        for (int64_t b = 0; b < batch; ++b) {
            found = std::max(found, of(b));
        }
        return found;
    }
    // Where a sequence's first row is: in which entry of the tensor's batch, and at which of its rows.
    int64_t entry(int64_t sequence) const {
        return ends ? 0 : sequence;
    }
    int64_t first(int64_t sequence) const {
        return ends ? ends[sequence] : 0;
    }
    // The sequence, of so many, that a row of an entry belongs to.
    int64_t sequence_of(int64_t entry, int64_t row, int64_t batch) const {
        return ends ? std::upper_bound(ends, ends + batch, row) - ends - 1 : entry;
    }
};

// The most rows of a sequence, as messages name it.
struct RowLimit {
    int64_t rows = std::numeric_limits<int64_t>::max();
    const char *name = "";
};

// Throws unless packed rows end so: from 0 to the `rows` of `tensor_name`, never going back, no sequence longer than
// the limit.
void check_ends(const int32_t *ends, const char *name, int64_t batch, int64_t rows, const char *tensor_name,
                const RowLimit &limit = {});

}  // namespace hattn
