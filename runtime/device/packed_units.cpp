#include "packed_units.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

namespace hattn {

namespace {

constexpr size_t kMostColumns = PackedUnits::kMostColumns;
// By how much columns grow, modulo 2^32.
using Columns = std::array<uint32_t, kMostColumns>;

// Records as they are, and as their first one and steps have it.
class Growth {
public:
    Growth(const int32_t *records, size_t count, size_t columns, const UnitOrder &order)
        : records_(records),
          count_(count),
          columns_(columns),
          inner_(order.inner),
          middle_(order.middle),
          outer_(order.outer),
          of_inner_(step(1, order.grow ? inner_ : 1)),
          of_middle_(step(inner_, order.grow ? middle_ : 1)),
          of_outer_(step(inner_ * middle_, order.grow ? outer_ : 1)) {}

    // Bit c: column c does not grow so.
    uint32_t exceptions() const {
        Columns differences = {}, of_outer = {}, of_middle = {}, expected = {};
        for (size_t c = 0; c < columns_ && count_ > 0; ++c) {
            of_outer[c] = static_cast<uint32_t>(records_[c]);
        }
        const int32_t *record = records_;
        for (size_t o = 0; o < outer_; ++o, of_outer = sum(of_outer, of_outer_)) {
            of_middle = of_outer;
            for (size_t m = 0; m < middle_; ++m, of_middle = sum(of_middle, of_middle_)) {
                expected = of_middle;
                for (size_t i = 0; i < inner_; ++i, record += columns_, expected = sum(expected, of_inner_)) {
                    for (size_t c = 0; c < columns_; ++c) {
                        differences[c] |= static_cast<uint32_t>(record[c]) ^ expected[c];
                    }
                }
            }
        }
        uint32_t mask = 0;
        for (size_t c = 0; c < columns_; ++c) {
            mask |= static_cast<uint32_t>(differences[c] != 0 || overflows(c)) << c;
        }
        return mask;
    }

    // Of a column, from one unit to the next in each dimension.
    std::array<int32_t, PackedUnits::kSteps> steps(size_t c) const {
        return {signed_step(of_inner_, c), signed_step(of_middle_, c), signed_step(of_outer_, c)};
    }

private:
    // From the first record to that one, in a dimension with so many.
    Columns step(size_t to, size_t extent) const {
        Columns steps = {};
        for (size_t c = 0; c < columns_ && extent > 1 && count_ > 0; ++c) {
            steps[c] = static_cast<uint32_t>(records_[to * columns_ + c]) - static_cast<uint32_t>(records_[c]);
        }
        return steps;
    }

    static Columns sum(const Columns &a, const Columns &b) {
        Columns result;
        for (size_t c = 0; c < kMostColumns; ++c) {
            result[c] = a[c] + b[c];
        }
        return result;
    }

    static int32_t signed_step(const Columns &steps, size_t c) {
        return static_cast<int32_t>(steps[c]);
    }

    // Whether a sum of steps, in any order, might be no int32_t.
    bool overflows(size_t c) const {
        const auto most = [&](const Columns &steps, size_t extent) {
            return std::llabs(signed_step(steps, c)) * static_cast<int64_t>(extent);
        };
        const int64_t first = count_ > 0 ? records_[c] : 0;
        return std::llabs(first) + most(of_inner_, inner_) + most(of_middle_, middle_) + most(of_outer_, outer_) >
               std::numeric_limits<int32_t>::max();
    }

    const int32_t *records_;
    const size_t count_, columns_, inner_, middle_, outer_;
    const Columns of_inner_, of_middle_, of_outer_;
};

}  // namespace

UnitOrder UnitOrder::of(size_t count) {
    return {static_cast<int32_t>(count), 1, 1, false};
}

UnitOrder UnitOrder::of(size_t count, int64_t inner, int64_t middle) {
    constexpr int64_t kMostBlocks = 65535;  // of a launch, in all dimensions but the innermost one
    const auto units = static_cast<int64_t>(count), outer = units / std::max<int64_t>(inner * middle, 1);
    if (outer * inner * middle != units || middle > kMostBlocks || outer > kMostBlocks) {
        return {static_cast<int32_t>(units), 1, 1, true};
    }
    return {static_cast<int32_t>(inner), static_cast<int32_t>(middle), static_cast<int32_t>(outer), true};
}

PackedUnits::PackedUnits(const int32_t *records, size_t count, size_t columns, const UnitOrder &order,
                         std::pmr::memory_resource *host)
    : columns_(columns), words_(host) {
    const Growth growth(records, count, columns, order);
    listed_ = growth.exceptions();
    std::array<size_t, kMostColumns> taken = {};
    size_t width = 0;
    for (size_t c = 0; c < columns; ++c) {
        if (listed_ >> c & 1) {
            taken[width++] = c;
            continue;
        }
        const auto steps = growth.steps(c);
        std::copy(steps.begin(), steps.end(), steps_.begin() + static_cast<ptrdiff_t>(kSteps * c));
    }
    std::copy_n(records, count > 0 ? columns : 0, first_.begin());
    const size_t before = order.grow ? 0 : columns;
    words_.resize(before + count * width);
    std::copy_n(first_.begin(), before, words_.begin());
    int32_t *to = words_.data() + before;
    for (size_t n = 0; n < count && width > 0; ++n) {
        for (size_t i = 0; i < width; ++i) {
            *to++ = records[n * columns + taken[i]];
        }
    }
}

}  // namespace hattn
