#include "packed_units.h"

#include <algorithm>
#include <array>

namespace hattn {

namespace {

uint32_t differing_columns(const int32_t *records, size_t count, size_t columns) {
    std::array<uint32_t, 32> differences = {};
    for (size_t n = 1; n < count; ++n) {
        const int32_t *record = records + n * columns;
        for (size_t c = 0; c < columns; ++c) {
            differences[c] |= static_cast<uint32_t>(record[c] ^ records[c]);
        }
    }
    uint32_t mask = 0;
    for (size_t c = 0; c < columns; ++c) {
        mask |= static_cast<uint32_t>(differences[c] != 0) << c;
    }
    return mask;
}

}  // namespace

PackedUnits::PackedUnits(const int32_t *records, size_t count, size_t columns, std::pmr::memory_resource *host)
    : differing_(differing_columns(records, count, columns)), words_(host) {
    std::array<size_t, 32> taken = {};
    size_t width = 0;
    for (size_t c = 0; c < columns; ++c) {
        if (differing_ >> c & 1) {
            taken[width++] = c;
        }
    }
    words_.resize(columns + count * width);
    std::copy_n(records, count > 0 ? columns : 0, words_.begin());
    int32_t *to = words_.data() + columns;
    for (size_t n = 0; n < count && width > 0; ++n) {
        for (size_t i = 0; i < width; ++i) {
            *to++ = records[n * columns + taken[i]];
        }
    }
}

}  // namespace hattn
