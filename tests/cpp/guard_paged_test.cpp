// Of pages, kernels touch the rows that hold keys and nothing else: rows past a sequence's length, and pages that no
// table names, fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "support/guarded_pages.h"
#include "support/run.h"
#include "support/target_test.h"
#include "support/targets.h"

namespace {

using namespace hattn;
using test::GuardedPages;

// Whole pages, and of the last page all but one or a few rows of its last granule.
constexpr int64_t kPageSizes[] = {16, 64};
constexpr int64_t kLeftOut[] = {0, 1, 9};

cases::Case paged_case(int64_t query_length, int64_t page_size, int64_t left_out, int64_t dim) {
    cases::Case c;
    c.name = "guard_pages_" + std::to_string(query_length) + "_" + std::to_string(page_size) + "_" +
             std::to_string(left_out) + "_" + std::to_string(dim);
    c.batch = 3;
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = query_length;
    c.kv_length = 5 * page_size - left_out;
    c.key_dim = dim;
    c.value_dim = dim + 3;
    c.causal = true;
    for (int64_t pages : {5, 1, 2}) {
        c.kv_lengths.push_back(static_cast<int32_t>(pages * page_size - left_out));
    }
    return c;
}

// The keys of a problem, dealt out to pages: every other page of the storage faults, and neighbours in a table are
// none in memory.
class PagedArguments {
public:
    PagedArguments(cases::Problem &problem, int64_t page_size)
        : page_size_(page_size), edge_(problem.spec.kv_lengths[0] - (kPagesPerSequence - 1) * page_size) {
        const cases::Case &c = problem.spec;
        table_.assign(static_cast<size_t>(c.batch * kPagesPerSequence), -1);
        deal_out_pages(c);
        k_.emplace(rows_, c.kv_heads, page_size, c.key_dim, edge_);
        v_.emplace(rows_, c.kv_heads, page_size, c.value_dim, edge_);
        copy(problem.k.view, k_->tensor(), c);
        copy(problem.v.view, v_->tensor(), c);
        problem.desc.page_size = page_size;
        problem.args.k = k_->tensor();
        problem.args.v = v_->tensor();
        problem.args.block_table = table_.data();
        problem.args.block_table_stride = kPagesPerSequence;
    }

private:
    static constexpr int64_t kPagesPerSequence = 5;

    int64_t pages_of(int64_t length) const {
        return (length + page_size_ - 1) / page_size_;
    }
    int32_t &page(int64_t b, int64_t n) {
        return table_[static_cast<size_t>(b * kPagesPerSequence + n)];
    }

    void deal_out_pages(const cases::Case &c) {
        int64_t count = 0;
        for (int32_t length : c.kv_lengths) {
            count += pages_of(length);
        }
        rows_.assign(static_cast<size_t>(2 * count + 1), 0);
        auto next = static_cast<int32_t>(2 * count - 1);
        for (int64_t b = 0; b < c.batch; ++b) {
            const int64_t length = c.kv_lengths[static_cast<size_t>(b)];
            for (int64_t n = 0; n < pages_of(length); ++n, next -= 2) {
                page(b, n) = next;
                rows_[static_cast<size_t>(next)] = std::min(page_size_, length - n * page_size_);
            }
        }
    }

    void copy(const hattn_tensor &from, const hattn_tensor &to, const cases::Case &c) {
        for (int64_t b = 0; b < c.batch; ++b) {
            for (int64_t h = 0; h < c.kv_heads; ++h) {
                for (int64_t j = 0; j < c.kv_lengths[static_cast<size_t>(b)]; ++j) {
                    std::memcpy(&cases::element<float>(to, page(b, j / page_size_), h, j % page_size_, 0),
                                &cases::element<float>(from, b, h, j, 0),
                                static_cast<size_t>(from.extent[3]) * sizeof(float));
                }
            }
        }
    }

    int64_t page_size_, edge_;
    std::vector<int32_t> table_;
    std::vector<int64_t> rows_;  // of each page, that hold keys
    std::optional<GuardedPages> k_, v_;
};

using Param = std::tuple<std::string, hattn_algorithm>;

std::string name_of(const testing::TestParamInfo<Param> &run) {
    return test::as_test_name(std::get<0>(run.param)) + "__" + test::algorithm_name(std::get<1>(run.param));
}

class GuardPaged : public test::TargetTest<Param> {
protected:
    void check(const cases::Case &c, int64_t page_size) {
        SCOPED_TRACE(cases::describe(c));
        test::Prepared data(c);
        PagedArguments arguments(data.problem, page_size);
        test::Outcome outcome = test::run(context_, data.problem, algorithm_);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "");
    }
};

TEST_P(GuardPaged, RowsPastTheLengthAndOtherPages) {
    for (int64_t page_size : kPageSizes) {
        for (int64_t left_out : kLeftOut) {
            for (int64_t query_length : {1, 7, 30}) {
                for (int64_t dim : {5, 67}) {
                    cases::Case c = paged_case(query_length, page_size, left_out, dim);
                    check(c, page_size);
                    c.name += "_window";
                    c.window_left = 19;
                    c.mask = cases::varying("qk");
                    check(c, page_size);
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, GuardPaged,
                         testing::Combine(testing::ValuesIn(test::target_names()),
                                          testing::ValuesIn(test::kAlgorithms)),
                         name_of);

}  // namespace
