// Tiles that are on their way while others are used, as Halide compiles them, on the emulator.
#include "schedules/cuda/early_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "decode.h"
#include "fault.h"
#include "launch.h"
#include "schedules/cuda/matrix_calls.h"
#include "schedules/cuda/thin_barriers.h"
#include "schedules/cuda/wide_rows.h"
#include "schedules/gpu/thread_registers.h"

namespace {

using namespace Halide;
namespace cuda = hattn::schedules::cuda;
using namespace hattn::emulated_cuda;

constexpr int kWidth = 256, kChunks = 5, kThreads = 32, kAtOnce = 8;

// out(x) = sum over c of keys(x, c) * values(kWidth - 1 - x, c): each thread needs what others have brought, and of
// keys what others have read.
struct Sums {
    ImageParam keys{UInt(16), 2, "keys"}, values{UInt(16), 2, "values"};
    // Of scratch and its like, and rows, Halide takes those first whose name does.
    Func key{"key"}, value{"rows"}, turned{"turned"}, scratch{"scratch"}, product{"product"}, state{"state"},
        out{"out"};
    Var x{"x"}, c{"c"};
    RDom r{0, kChunks, "r"};

    Sums() {
        key(x, c) = keys(x, c);
        value(x, c) = values(x, c);
        turned(x, c) = cast<float>(key(kWidth - 1 - x, c));
        scratch(x, c) = turned(x, c);  // in shared memory, where Halide has no more use for keys
        product(x, c) = scratch(kWidth - 1 - x, c) * cast<float>(value(kWidth - 1 - x, c));
        state(x) = 0.0f;
        state(x) += product(x, r);
        out(x) = state(x);
        schedule();
    }

    template<typename Stage>
    Stage over_threads(Stage stage) {
        return stage.split(x, in_thread, thread, kThreads);
    }

    void schedule() {
        over_threads(out.bound(x, 0, kWidth).split(x, block, x, kWidth))
            .reorder(in_thread, thread, block)
            .unroll(in_thread)
            .gpu_blocks(block)
            .gpu_threads(thread);
        state.compute_at(out, block).store_in(MemoryType::Register).bound(x, 0, kWidth);
        over_threads(state).reorder(in_thread, thread).unroll(in_thread).gpu_threads(thread);
        over_threads(state.update()).reorder(in_thread, thread, r.x).unroll(in_thread).gpu_threads(thread);
        for (Func f : {key, value, turned, scratch, product}) {
            f.compute_at(state, r.x).bound(x, 0, kWidth).bound_extent(c, 1);
        }
        for (Func f : {key, value}) {
            f.split(x, thread, in_thread, kAtOnce).vectorize(in_thread).gpu_threads(thread);
        }
        for (Func f : {turned, scratch, product}) {
            over_threads(f).reorder(in_thread, thread).unroll(in_thread).gpu_threads(thread);
        }
        turned.store_in(MemoryType::Register);
        product.store_in(MemoryType::Register);
        for (OutputImageParam buffer : {OutputImageParam(keys), OutputImageParam(values), out.output_buffer()}) {
            buffer.dim(0).set_bounds(0, kWidth);
        }
        for (ImageParam input : {keys, values}) {
            input.dim(1).set_bounds(0, kChunks).set_stride(kWidth);
        }
    }

    std::string compile(const cuda::Tiles &tiles) {
        Pipeline pipeline(out);
        pipeline.add_custom_lowering_pass(new cuda::EarlyTiles(tiles));
        pipeline.add_custom_lowering_pass(new cuda::ThinBarriers(tiles));
        pipeline.add_custom_lowering_pass(new hattn::schedules::gpu::ThreadRegisters);
        pipeline.add_custom_lowering_pass(new cuda::WideRows(tiles));
        const Target target("x86-64-linux-sse41-cuda-cuda_capability_80-no_asserts-no_bounds_query-no_runtime");
        const Module module = pipeline.compile_to_module({keys, values}, "sums", target);
        cuda::replace_matrix_calls(module);
        Buffer<> code = module.get_device_code_buffer();
        return std::string(static_cast<const char *>(code.data()));
    }

private:
    Var block{"block"}, thread{"thread"}, in_thread{"in_thread"};
};

int key_at(int x, int c) {
    return (5 * x + 3 * c) % 17;
}
int value_at(int x, int c) {
    return (x + 7 * c) % 23;
}

// Whether the result is right. Throws Fault.
bool is_right(const Program &program, const LeftOut &left_out = {}) {
    Allocations allocations;
    uint64_t keys = allocations.allocate(kWidth * kChunks * 2), values = allocations.allocate(kWidth * kChunks * 2);
    uint64_t out = allocations.allocate(kWidth * 4);
    for (int c = 0; c < kChunks; ++c) {
        for (int x = 0; x < kWidth; ++x) {
            reinterpret_cast<uint16_t *>(keys)[c * kWidth + x] = static_cast<uint16_t>(key_at(x, c));
            reinterpret_cast<uint16_t *>(values)[c * kWidth + x] = static_cast<uint16_t>(value_at(x, c));
        }
    }
    void *arguments[] = {&keys, &out, &values};
    launch(program, {{1, 1, 1}, {kThreads, 1, 1}, 16 * 1024}, arguments, allocations, left_out);
    for (int x = 0; x < kWidth; ++x) {
        int sum = 0;
        for (int c = 0; c < kChunks; ++c) {
            sum += key_at(x, c) * value_at(kWidth - 1 - x, c);
        }
        if (reinterpret_cast<const float *>(out)[x] != static_cast<float>(sum)) {
            return false;
        }
    }
    return true;
}

int count(const std::string &text, const std::string &word) {
    int found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        ++found;
    }
    return found;
}

TEST(EarlyTiles, AreThereWhenTheyAreUsed) {
    Sums sums;
    const std::string ptx = sums.compile({sums.key.name(), sums.value.name()});
    EXPECT_EQ(count(ptx, "cp.async.cg."), 3) << "of keys before the loop and in it, of values in it";
    EXPECT_EQ(count(ptx, "cp.async.wait_group 0;"), 1) << "for keys, before values are asked for";
    EXPECT_EQ(count(ptx, "cp.async.wait_group 1;"), 1) << "for values, while keys are on their way";
    EXPECT_EQ(count(ptx, "hattn_"), 0);
    EXPECT_TRUE(is_right(decode(parse_ptx(ptx).at(0))));
}

TEST(EarlyTiles, OfTheNextChunkAlone) {
    Sums sums;
    const std::string ptx = sums.compile({sums.key.name(), ""});
    EXPECT_EQ(count(ptx, "cp.async.cg."), 2);
    EXPECT_EQ(count(ptx, "cp.async.wait_group 0;"), 1);
    EXPECT_TRUE(is_right(decode(parse_ptx(ptx).at(0))));
}

TEST(EarlyTiles, MissWhatIsLeftOut) {
    Sums sums;
    const Program program = decode(parse_ptx(sums.compile({sums.key.name(), sums.value.name()})).at(0));
    for (int wait = 1; wait <= 2; ++wait) {
        EXPECT_THROW(is_right(program, {.wait = wait}), Fault) << wait;
    }
    std::string missed;
    for (int barrier = 1; barrier <= program.barriers; ++barrier) {
        try {
            EXPECT_TRUE(is_right(program, {.barrier = barrier}));
            missed += '.';
        } catch (const Fault &) {
            missed += 'x';
        }
    }
    // Behind both waits, of which that for keys also stands before values are overwritten, and before keys are.
    EXPECT_GE(std::count(missed.begin(), missed.end(), 'x'), 3) << missed;
}

TEST(EarlyTiles, RefuseAnotherOrder) {
    Sums sums;
    EXPECT_THROW(sums.compile({"nothing", ""}), std::runtime_error);
    Sums swapped;
    EXPECT_THROW(swapped.compile({swapped.value.name(), swapped.key.name()}), std::runtime_error);
}

}  // namespace
