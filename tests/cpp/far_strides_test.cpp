// Heads that lie as far apart as strides may be: kernels index with 32 bits, so that a tile takes several calls.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>
#include <vector>

#include "support/run.h"

namespace {

using namespace hattn;

constexpr int64_t kFar = int64_t{1} << 27;  // elements, the longest stride of heads there is

// Memory of which only what is touched exists.
class SparseMemory {
public:
    explicit SparseMemory(size_t bytes)
        : bytes_(bytes),
          data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~SparseMemory() {
        if (ok()) {
            munmap(data_, bytes_);
        }
    }
    SparseMemory(const SparseMemory &) = delete;
    SparseMemory &operator=(const SparseMemory &) = delete;

    bool ok() const {
        return data_ != MAP_FAILED;
    }
    void *data() const {
        return data_;
    }

private:
    size_t bytes_;
    void *data_;
};

// A tensor [1, heads, ...] with its heads far apart.
class FarHeads {
public:
    explicit FarHeads(hattn_tensor &tensor)
        : near_(tensor),
          element_(cases::element_size(tensor.dtype)),
          head_bytes_(static_cast<size_t>(tensor.stride[1]) * element_),
          memory_(static_cast<size_t>(tensor.extent[1]) * kFar * element_) {
        tensor.data = memory_.data();
        tensor.stride[1] = kFar;
    }

    bool ok() const {
        return memory_.ok();
    }
    void put() {
        for (int64_t h = 0; h < near_.extent[1]; ++h) {
            std::memcpy(far(h), near(h), head_bytes_);
        }
    }
    void collect() {
        for (int64_t h = 0; h < near_.extent[1]; ++h) {
            std::memcpy(near(h), far(h), head_bytes_);
        }
    }

private:
    void *near(int64_t head) const {
        return static_cast<char *>(near_.data) + static_cast<size_t>(head) * head_bytes_;
    }
    void *far(int64_t head) const {
        return static_cast<char *>(memory_.data()) + static_cast<size_t>(head * kFar) * element_;
    }

    hattn_tensor near_;
    size_t element_, head_bytes_;
    SparseMemory memory_;
};

class FarStrides : public testing::TestWithParam<hattn_algorithm> {};

TEST_P(FarStrides, ManyHeadsOfOneKvHead) {
    test::ContextPtr context = test::make_context(2);
    const std::pair<int64_t, int64_t> kLengths[] = {{1, 70}, {3, 70}, {1, 1500}, {3, 1500}};
    for (const auto &[query_length, kv_length] : kLengths) {
        cases::Case c;
        c.name = "far_" + std::to_string(query_length) + "_" + std::to_string(kv_length);
        c.query_heads = 40;
        c.kv_heads = 1;
        c.query_length = query_length;
        c.kv_length = kv_length;
        c.causal = true;
        c.sinks = cases::Sinks::kNormal;
        c.window_left = kv_length > 1000 ? 1019 : -1;
        c.bias = cases::varying("hqk");
        c.mask = cases::varying("hqk");
        test::Prepared data(c);
        // As near as they are first: strides do not change a bit.
        ASSERT_TRUE(test::run(context.get(), data.problem, GetParam()).ok());
        const std::vector<float> expected = test::output_values(data.problem);
        data.problem.fill_outputs();

        hattn_attention_args &args = data.problem.args;
        std::vector<std::unique_ptr<FarHeads>> moved;
        for (hattn_tensor *tensor : {&args.out, &args.lse, &args.q, &args.bias, &args.mask}) {
            moved.push_back(std::make_unique<FarHeads>(*tensor));
            if (!moved.back()->ok()) {
                GTEST_SKIP() << "no room for " << args.q.extent[1] * kFar << " elements";
            }
            moved.back()->put();
        }
        test::Outcome outcome = test::run(context.get(), data.problem, GetParam());
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        moved[0]->collect();
        moved[1]->collect();
        EXPECT_EQ(cases::difference(data.problem, data.expected), "");
        EXPECT_TRUE(test::same_bits(test::output_values(data.problem), expected));
    }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, FarStrides, testing::ValuesIn(test::kAlgorithms),
                         [](const auto &run) { return test::algorithm_name(run.param); });

// Tiles have up to 256 rows.
TEST(FarRows, AndKeysOfABias) {
    constexpr int64_t kRowStride = int64_t{1} << 23, kKeyStride = int64_t{1} << 16;
    cases::Case c;
    c.name = "far_bias";
    c.query_heads = c.kv_heads = 1;
    c.query_length = 256;
    c.kv_length = 512;
    c.bias = cases::varying("qk");
    cases::Problem problem(c);
    hattn_tensor &bias = problem.args.bias;
    std::fill_n(static_cast<float *>(bias.data), c.query_length * c.kv_length, 0.0f);
    test::ContextPtr context = test::make_context();
    ASSERT_TRUE(test::run(context.get(), problem).ok());
    const std::vector<float> expected = cases::dense_floats(problem.args.out);
    // Read alone, so that none of its pages takes memory.
    const SparseMemory zeros(
        static_cast<size_t>(((c.query_length - 1) * kRowStride + (c.kv_length - 1) * kKeyStride + 1)) * sizeof(float));
    if (!zeros.ok()) {
        GTEST_SKIP() << "no room for so large an array";
    }
    bias.data = zeros.data();
    bias.stride[2] = kRowStride;
    bias.stride[3] = kKeyStride;
    const test::Outcome outcome = test::run(context.get(), problem);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_TRUE(test::same_bits(cases::dense_floats(problem.args.out), expected));
}

}  // namespace
