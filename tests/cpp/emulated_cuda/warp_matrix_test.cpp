// Products of matrices that Halide compiles for tensor cores, on the emulator: exact where the numbers are.
#include "schedules/cuda/warp_matrix.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "decode.h"
#include "half_floats.h"
#include "launch.h"
#include "schedules/cuda/exchanged_blocks.h"
#include "schedules/cuda/matrix_calls.h"
#include "schedules/gpu/thread_registers.h"

namespace {

using namespace Halide;
namespace cuda = hattn::schedules::cuda;
using namespace hattn::emulated_cuda;

constexpr int kRows = 32, kColumns = 16, kSum = 32;
constexpr int kMatrixSumExtent = 16;

// product(n, m) = sum over k of a(k, m) * b(k, n), a warp per 16 rows.
struct Product {
    ImageParam a{Float(16), 2, "a"}, b{Float(16), 2, "b"};
    Func product{"product"}, result{"result"};
    Var m{"m"}, n{"n"};
    RDom k{0, kSum, "k"};

    Product(bool on_tensor_cores, int summed_at_once) {
        product(n, m) = 0.0f;
        product(n, m) += cast<float>(a(k, m)) * cast<float>(b(k, n));
        result(n, m) = product(n, m);
        schedule(on_tensor_cores, summed_at_once);
        for (OutputImageParam buffer : {OutputImageParam(a), OutputImageParam(b), result.output_buffer()}) {
            buffer.dim(0).set_min(0);
            buffer.dim(1).set_min(0);
        }
        a.dim(0).set_extent(kSum).dim(1).set_stride(kSum).set_extent(kRows);
        b.dim(0).set_extent(kSum).dim(1).set_stride(kSum).set_extent(kColumns);
        result.output_buffer().dim(0).set_extent(kColumns).dim(1).set_stride(kColumns).set_extent(kRows);
    }

    // lane = 4 * group + thread, as the instruction has it.
    template<typename Stage>
    Stage over_lanes(Stage stage) {
        return stage.split(m, warp, in_m, 16)
            .split(in_m, half, group, 8)
            .split(n, tile, in_n, 8)
            .split(in_n, thread, column, 2)
            .fuse(thread, group, lane);
    }

    void schedule(bool on_tensor_cores, int summed_at_once) {
        RVar step("step"), sum(cuda::kMatrixSum);
        result.split(m, block, m, kRows).bound(n, 0, kColumns);
        over_lanes(result)
            .reorder(column, half, tile, lane, warp, block)
            .unroll(column)
            .unroll(half)
            .unroll(tile)
            .gpu_blocks(block)
            .gpu_threads(lane, warp);
        product.store_in(MemoryType::Register).compute_at(result, block).bound_extent(m, kRows).bound(n, 0, kColumns);
        over_lanes(product)
            .reorder(column, half, tile, lane, warp)
            .unroll(column)
            .unroll(half)
            .unroll(tile)
            .gpu_threads(lane, warp);
        auto update = over_lanes(product.update()).split(k, step, sum, summed_at_once);
        update.reorder(column, half, sum, tile, step, lane, warp).unroll(tile).unroll(step).gpu_threads(lane, warp);
        if (!on_tensor_cores) {
            update.unroll(column).unroll(half);  // to registers that constants name
        }
    }

    Module compile(bool on_tensor_cores) {
        Pipeline pipeline(result);
        if (on_tensor_cores) {
            pipeline.add_custom_lowering_pass(new cuda::WarpMatrix);
        }
        pipeline.add_custom_lowering_pass(new hattn::schedules::gpu::ThreadRegisters);
        const Target target("x86-64-linux-sse41-cuda-cuda_capability_80-no_asserts-no_bounds_query-no_runtime");
        return pipeline.compile_to_module({a, b}, "product", target);
    }

private:
    Var block{"block"}, warp{"warp"}, in_m{"in_m"}, group{"group"}, tile{"tile"}, in_n{"in_n"}, thread{"thread"},
        lane{"lane"}, half{cuda::kMatrixHalf}, column{cuda::kMatrixColumn};
};

std::string device_code(const Module &module) {
    Buffer<> code = module.get_device_code_buffer();
    return std::string(static_cast<const char *>(code.data()));
}

int a_at(int m, int k) {
    return (5 * m + 3 * k) % 11 - 5;
}
int b_at(int k, int n) {
    return (k + 7 * n) % 13 - 6;
}

void expect_exact(const std::string &ptx) {
    Allocations allocations;
    uint64_t a = allocations.allocate(kRows * kSum * 2), b = allocations.allocate(kColumns * kSum * 2);
    uint64_t result = allocations.allocate(kRows * kColumns * 4);
    for (int k = 0; k < kSum; ++k) {
        for (int m = 0; m < kRows; ++m) {
            reinterpret_cast<uint16_t *>(a)[m * kSum + k] = float16_bits(static_cast<float>(a_at(m, k)));
        }
        for (int n = 0; n < kColumns; ++n) {
            reinterpret_cast<uint16_t *>(b)[n * kSum + k] = float16_bits(static_cast<float>(b_at(k, n)));
        }
    }
    const Program program = decode(parse_ptx(ptx).at(0));
    ASSERT_EQ(program.parameter_bytes, (std::vector<int>{8, 8, 8})) << "everything else is a constant";
    void *arguments[] = {&result, &a, &b};
    launch(program, {{1, 1, 1}, {32, kRows / 16, 1}, 0}, arguments, allocations);
    for (int m = 0; m < kRows; ++m) {
        for (int n = 0; n < kColumns; ++n) {
            int sum = 0;
            for (int k = 0; k < kSum; ++k) {
                sum += a_at(m, k) * b_at(k, n);
            }
            EXPECT_EQ(reinterpret_cast<const float *>(result)[m * kColumns + n], static_cast<float>(sum))
                << m << ' ' << n;
        }
    }
}

int count(const std::string &text, const std::string &word) {
    int found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        ++found;
    }
    return found;
}

TEST(WarpMatrix, IsExactWithoutThePass) {
    const std::string ptx = device_code(Product(false, kMatrixSumExtent).compile(false));
    EXPECT_EQ(count(ptx, "mma.sync"), 0);
    expect_exact(ptx);
}

TEST(WarpMatrix, IsExactOnTensorCores) {
    const Module module = Product(true, kMatrixSumExtent).compile(true);
    cuda::replace_matrix_calls(module);
    const std::string ptx = device_code(module);
    EXPECT_EQ(count(ptx, "mma.sync"), kColumns / 8 * kSum / 16);
    EXPECT_EQ(count(ptx, "hattn_"), 0);
    expect_exact(ptx);
}

TEST(WarpMatrix, RefusesNestsOfAnotherShape) {
    try {
        Product(true, kMatrixSumExtent / 2).compile(true);
        ADD_FAILURE() << "was compiled";
    } catch (const std::runtime_error &error) {
        EXPECT_NE(std::string(error.what()).find("no product of matrices for a warp"), std::string::npos)
            << error.what();
    }
}

// Of tiles of 16 rows.
TEST(ExchangedBlocks, EightRowsAreInDifferentBanksAndSectorsStayWhole) {
    constexpr int kBlock = 16, kSector = 32, kBanks = 128, kTileRows = 16;
    for (const int row_bytes : {128, 160, 192, 224, 256, 288, 384, 512}) {
        const auto place = [&](int row, int block) {
            const Expr bytes = row * row_bytes + block * kBlock;
            const Expr found = bytes + cuda::exchanged_by(bytes, row_bytes, {});
            return static_cast<int>(Internal::as_const_int(Internal::simplify(found)).value());
        };
        std::set<int> places;
        for (int block = 0; block < row_bytes / kBlock; ++block) {
            std::set<int> banks;
            for (int row = 0; row < kTileRows; ++row) {
                const int found = place(row, block);
                EXPECT_EQ(found / kSector, place(row, block ^ 1) / kSector) << row_bytes << " " << row << " " << block;
                places.insert(found);
                banks.insert(found % kBanks / kBlock + row / 8 * kBanks);
            }
            EXPECT_EQ(banks.size(), static_cast<size_t>(kTileRows)) << row_bytes << " " << block;
        }
        EXPECT_EQ(places.size(), static_cast<size_t>(kTileRows * row_bytes / kBlock)) << row_bytes;
        EXPECT_EQ(*places.rbegin(), kTileRows * row_bytes - kBlock) << row_bytes;
    }
}

}  // namespace
