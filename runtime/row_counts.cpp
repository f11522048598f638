#include "row_counts.h"

#include "status.h"

namespace hattn {

void check_ends(const int32_t *ends, const char *name, int64_t batch, int64_t rows, const char *tensor_name,
                const RowLimit &limit) {
    require(ends[0] == 0, HATTN_INVALID_ARGUMENT, name, "[0]: is ", ends[0], ", but must be 0");
    for (int64_t b = 0; b < batch; ++b) {
        require(ends[b + 1] >= ends[b], HATTN_INVALID_ARGUMENT, name, "[", b + 1, "]: is ", ends[b + 1],
                ", but the entry before is ", ends[b]);
        const int64_t count = int64_t{ends[b + 1]} - ends[b];
        require(count <= limit.rows, HATTN_CAPACITY_EXCEEDED, name, ": sequence ", b, " has ", count, " rows, but ",
                limit.name, " is ", limit.rows);
    }
    require(ends[batch] == rows, HATTN_INVALID_ARGUMENT, name, "[", batch, "]: is ", ends[batch], ", but ", tensor_name,
            " has ", rows, " rows");
}

}  // namespace hattn
