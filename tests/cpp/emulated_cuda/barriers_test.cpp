// Kernels need their barriers and their waits for copies, and the emulator finds it where one is missing: each in turn
// is left out.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/devices.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

// Not enough for heads of 256 but in parts.
const int kRoom = setenv("HATTN_STUB_CUDA_SHARED", "165888", 0) + setenv("HATTN_STUB_CUDA_CAPABILITY", "90", 0);

struct Kernels {
    hattn_algorithm algorithm;
    int barriers;                           // of the kernel that has most of them, see tests/codegen/cuda_kernels.json
    int needed;                             // at least: that stand alone between threads of different warps
    const char *on_tensor_cores = nullptr;  // how
    int64_t head = 64;
    bool masked = false;
    int waits = 0;            // for copies
    int spare_waits = 0;      // of these, those for tiles of no chunk
    const char *forced = "";  // which kernel, where a GPU with warpgroups would take another
};

constexpr const char *kWithoutBarrier = "HATTN_EMULATED_CUDA_WITHOUT_BARRIER";
constexpr const char *kWithoutWait = "HATTN_EMULATED_CUDA_WITHOUT_WAIT";

class Barriers : public testing::TestWithParam<Kernels> {
protected:
    void SetUp() override {
        if (!test::has_cuda_kernels()) {
            GTEST_SKIP() << "the build has no kernels for cuda";
        }
    }
    void TearDown() override {
        unsetenv(kWithoutBarrier);
        unsetenv(kWithoutWait);
    }

    // Of several chunks of keys, so that the ends of their loop meet.
    static test::Outcome run_without(const char *what, int number, const Kernels &kernels) {
        const hattn_algorithm algorithm = kernels.algorithm;
        setenv(what, std::to_string(number).c_str(), 1);
        cases::Case c;
        c.name = "barriers";
        c.query_length = algorithm == HATTN_ALGORITHM_FLASH ? 70 : 3;
        c.kv_length = 300;
        c.key_dim = c.value_dim = kernels.head;
        c.mask = kernels.masked ? cases::varying("qk") : cases::Operand{};
        const hattn_dtype type = kernels.on_tensor_cores ? HATTN_FLOAT16 : HATTN_FLOAT32;
        cases::TypedProblem problem(c, {"alike", type, type, type, type});
        problem.desc.device = HATTN_CUDA;
        problem.desc.algorithm = algorithm;
        const test::ContextPtr context = test::make_context(1, kernels.forced);
        const test::PlanPtr plan = test::make_plan(context.get(), problem.desc);
        return test::execute(plan.get(), problem.args);
    }
};

// Halide puts a barrier behind every stage, also where the stage stays in registers or another barrier follows: those
// are not missed.
TEST_P(Barriers, AreMissed) {
    const int barriers = GetParam().barriers;
    EXPECT_TRUE(run_without(kWithoutBarrier, 0, GetParam()).ok());
    int missed = 0;
    std::string list;
    for (int barrier = 1; barrier <= barriers; ++barrier) {
        const test::Outcome outcome = run_without(kWithoutBarrier, barrier, GetParam());
        missed += outcome.ok() ? 0 : 1;
        list += outcome.ok() ? '.' : 'x';
        if (!outcome.ok()) {
            EXPECT_EQ(outcome.status, HATTN_INTERNAL_ERROR);
            EXPECT_NE(outcome.message.find("cuLaunchKernel"), std::string::npos) << outcome.message;
        }
    }
    RecordProperty("missed", list);
    EXPECT_GE(missed, GetParam().needed) << list;
    EXPECT_TRUE(run_without(kWithoutBarrier, barriers + 1, GetParam()).ok()) << "there are more";
}

TEST_P(Barriers, AndWaitsAreMissed) {
    const int waits = GetParam().waits;
    int missed = 0;
    for (int wait = 1; wait <= waits; ++wait) {
        missed += run_without(kWithoutWait, wait, GetParam()).status == HATTN_INTERNAL_ERROR ? 1 : 0;
    }
    EXPECT_EQ(missed, waits - GetParam().spare_waits);
    EXPECT_TRUE(run_without(kWithoutWait, waits + 1, GetParam()).ok()) << "there are more";
}

INSTANTIATE_TEST_SUITE_P(
    All, Barriers,
    testing::Values(Kernels{HATTN_ALGORITHM_FLASH, 15, 5},
                    Kernels{HATTN_ALGORITHM_FLASH, 10, 7, "on_tensor_cores", 64, false, 3, 1,
                            "kernel=flash_cuda_r128k64s4t4h64_float16"},
                    Kernels{HATTN_ALGORITHM_FLASH, 13, 8, "on_tensor_cores_in_parts", 256, false, 2, 0,
                            "kernel=flash_cuda_r64k32s8t2h256_float16"},
                    Kernels{HATTN_ALGORITHM_FLASH, 13, 7, "on_tensor_cores_masked", 64, true, 1},
                    Kernels{HATTN_ALGORITHM_FLASH, 7, 5, "of_warpgroups", 128, false, 2, 1,
                            "kernel=flash_cuda_r128k64s4t2h128_float16_warpgroups"},
                    Kernels{HATTN_ALGORITHM_FLASH, 8, 5, "of_warpgroups_large_heads", 256, false, 3, 1,
                            "kernel=flash_cuda_r64k64s4t2h256_float16_warpgroups"},
                    Kernels{HATTN_ALGORITHM_SPLIT_KV, 15, 5},
                    Kernels{HATTN_ALGORITHM_SPLIT_KV, 18, 8, "on_tensor_cores", 128, false, 2},
                    Kernels{HATTN_ALGORITHM_SPLIT_KV, 23, 8, "on_tensor_cores_masked", 128, true, 1},
                    Kernels{HATTN_ALGORITHM_NAIVE, 17, 1}, Kernels{HATTN_ALGORITHM_UNFUSED, 10, 3}),
    [](const auto &parameter) {
        const char *how = parameter.param.on_tensor_cores;
        return test::algorithm_name(parameter.param.algorithm) + (how ? std::string("_") + how : std::string());
    });

}  // namespace
