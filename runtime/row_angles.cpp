#include "row_angles.h"

namespace hattn {

int64_t place_of(const RowCounts &rows, int64_t b, int64_t i) {
    return rows.entry(b) * rows.rows + rows.first(b) + i;
}

void compute_angles(const RowTurner &rope, int64_t batch, const RowCounts &rows, RowAngles &angles) {
    angles.pairs = rope.pairs();
    angles.interleaved = rope.interleaved();
    const auto pairs = static_cast<size_t>(angles.pairs);
    angles.cosines.resize(static_cast<size_t>((rows.entry(batch - 1) + 1) * rows.rows) * pairs);
    angles.sines.resize(angles.cosines.size());
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < rows.of(b); ++i) {
            rope.move_to(b, i, 0);
            const size_t first = static_cast<size_t>(place_of(rows, b, i)) * pairs;
            for (size_t pair = 0; pair < pairs; ++pair) {
                angles.cosines[first + pair] = static_cast<float>(rope.cosines(0)[pair]);
                angles.sines[first + pair] = static_cast<float>(rope.sines(0)[pair]);
            }
        }
    }
}

void list_rows(int64_t batch, const RowCounts &rows, std::vector<RowRun> &runs) {
    runs.clear();
    for (int64_t b = 0; b < batch; ++b) {
        if (rows.of(b) > 0) {
            const int64_t entry = rows.entry(b), first = rows.first(b);
            runs.push_back({entry, first, entry, first, rows.of(b), place_of(rows, b, 0)});
        }
    }
}

}  // namespace hattn
