// Where granules of keys lie, against element addresses computed plainly.
#include "runtime/key_storage.h"

#include <gtest/gtest.h>

#include <numeric>

#include "random.h"
#include "tensor_data.h"

namespace {

using namespace hattn;

constexpr int64_t kBatch = 3, kHeads = 2, kDim = 5;

// One side of an attention, [pages, heads, rows, dim], whose elements all differ.
struct Side {
    Side(int64_t pages, int64_t rows, const std::array<int, 4> &order, const cases::Gaps &gaps = {})
        : tensor(cases::make_tensor(HATTN_FLOAT32, {pages, kHeads, rows, kDim}, order, gaps)) {
        std::iota(tensor.floats(),
                  tensor.floats() + cases::element_offset(tensor.view, pages - 1, kHeads - 1, rows - 1, kDim), 0.0f);
    }
    const float *row(int64_t page, int64_t head, int64_t at) const {
        return &cases::element<float>(tensor.view, page, head, at, 0);
    }
    cases::TensorData tensor;
};

// Every key of a range has to be where `expected` says.
template<typename Expected>
void check(const Problem &problem, const hattn_attention_args &args, const Side &side, const GranuleRange &range,
           int64_t length, Expected expected) {
    std::vector<int32_t> table(static_cast<size_t>(range.count) + 1, -77);
    for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t h = 0; h < kHeads; ++h) {
            const GranuleAddress at = locate_granules(problem, args, side.tensor.view, b, h, range, table.data());
            for (int64_t j = 16 * range.first; j < std::min(16 * (range.first + range.count), length); ++j) {
                const int64_t granule = at.table[j / 16 - range.first];
                const auto *base = static_cast<const float *>(at.base);
                ASSERT_EQ(base + granule * at.unit + j % 16 * at.row_stride, expected(b, h, j))
                    << "sequence " << b << ", head " << h << ", key " << j;
            }
        }
    }
    EXPECT_EQ(table.back(), -77);
}

constexpr std::array<int, 4> kBhsd = {0, 1, 2, 3}, kBshd = {0, 2, 1, 3}, kHbsd = {1, 0, 2, 3};

TEST(KeyStorage, Contiguous) {
    Problem problem{};
    hattn_attention_args args{};
    for (const auto &order : {kBhsd, kBshd, kHbsd}) {
        const Side side(kBatch, 70, order, {3, 0, 4, 0});
        for (const GranuleRange &range : {GranuleRange{0, 5}, GranuleRange{2, 2}, GranuleRange{4, 1}}) {
            check(problem, args, side, range, 70, [&](int64_t b, int64_t h, int64_t j) { return side.row(b, h, j); });
        }
    }
}

TEST(KeyStorage, Pages) {
    cases::Random random(7);
    for (int64_t page_size : {16, 32, 64, 128}) {
        for (const auto &order : {kBhsd, kBshd, kHbsd}) {
            for (int64_t gap : {0, 1, 3}) {
                const int64_t pages = 9, columns = 4;
                Problem problem{};
                problem.page_size = page_size;
                std::vector<int32_t> block_table(kBatch * columns);
                for (int32_t &page : block_table) {
                    page = static_cast<int32_t>(random.integer(0, pages - 1));
                }
                hattn_attention_args args{};
                args.block_table = block_table.data();
                args.block_table_stride = columns;
                const Side side(pages, page_size, order, {gap, 0, gap, 0});
                const int64_t granules = columns * page_size / 16;
                for (const GranuleRange &range : {GranuleRange{0, granules}, GranuleRange{1, 3}}) {
                    check(problem, args, side, range, columns * page_size, [&](int64_t b, int64_t h, int64_t j) {
                        const int32_t page = block_table[static_cast<size_t>(b * columns + j / page_size)];
                        return side.row(page, h, j % page_size);
                    });
                }
            }
        }
    }
}

void check_ring(const Side &side, int64_t rows, const GranuleRange &range) {
    Problem problem{};
    problem.ring = true;
    hattn_attention_args args{};
    args.k = HATTN_TENSOR_INIT;
    args.k.extent[2] = rows;
    check(problem, args, side, range, 1 << 29,
          [&](int64_t b, int64_t h, int64_t j) { return side.row(b, h, j % rows); });
}

TEST(KeyStorage, Rings) {
    const Side side(kBatch, 48, kBshd);
    for (const GranuleRange &range : {GranuleRange{0, 3}, GranuleRange{2, 3}, GranuleRange{1000001, 3}}) {
        check_ring(side, 48, range);
    }
}

// Scales of keys lie as the keys do, and may have more rows.
TEST(KeyStorage, MoreRowsThanTheRingHas) {
    for (const int64_t rows : {32, 33, 48, 64}) {
        check_ring(Side(kBatch, rows, kBhsd), 32, {1, 4});
    }
}

TEST(KeyStorage, ASinglePageHasNoStride) {
    Problem problem{};
    problem.page_size = 32;
    const int32_t block_table[kBatch * 2] = {};
    hattn_attention_args args{};
    args.block_table = block_table;
    args.block_table_stride = 2;
    Side side(1, 32, kBhsd);
    side.tensor.view.stride[0] = 12345;  // ignored, as that of any extent of 1
    check(problem, args, side, {0, 4}, 64, [&](int64_t, int64_t h, int64_t j) { return side.row(0, h, j % 32); });
}

}  // namespace
