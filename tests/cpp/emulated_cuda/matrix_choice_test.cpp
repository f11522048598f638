// Which problems kernels for tensor cores are taken for, and with which tiles: on GPUs with products of warpgroups, and
// on others.
#include <gtest/gtest.h>

#include <algorithm>

#include "matrix_case.h"
#include "support/devices.h"
#include "support/json_text.h"
#include "support/tuning_file.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;

constexpr cases::StoredTypes kFloat16 = {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16};
constexpr cases::StoredTypes kBfloat16 = {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16};
constexpr hattn_algorithm kAlgorithms[] = {HATTN_ALGORITHM_FLASH, HATTN_ALGORITHM_SPLIT_KV};

// Whether the GPU is one of them.
bool has_warpgroups() {
    const auto info = test::info_of(test::device_context());
    return std::ranges::any_of(info.at("devices"), [](const auto &device) {
        return device.at("name") == "cuda" && device.at("found").at(0).at("warpgroups") == true;
    });
}

// What tensor cores do not compute goes to the other kernels.
TEST(MatrixKernelChoice, IsOfTypesThatAreAlike) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    const auto matrix_type = [](const cases::Case &c, const cases::StoredTypes &types, hattn_algorithm algorithm) {
        cases::TypedProblem problem(c, types);
        problem.desc.device = HATTN_CUDA;
        problem.desc.algorithm = algorithm;
        return test::matrix_type(test::make_plan(test::device_context(), problem.desc).get());
    };
    const cases::Case plain = test::matrix_case("choice");
    EXPECT_EQ(matrix_type(plain, kFloat16, HATTN_ALGORITHM_AUTO), HATTN_FLOAT16);
    EXPECT_EQ(matrix_type(plain, kFloat16, HATTN_ALGORITHM_SPLIT_KV), HATTN_FLOAT16);
    EXPECT_EQ(matrix_type(plain, kFloat16, HATTN_ALGORITHM_UNFUSED), HATTN_FLOAT32);
    cases::Case biased = plain;
    biased.bias = cases::varying("qk");
    EXPECT_EQ(matrix_type(biased, kFloat16, HATTN_ALGORITHM_AUTO), HATTN_FLOAT16);
    EXPECT_EQ(matrix_type(biased, kFloat16, HATTN_ALGORITHM_SPLIT_KV), HATTN_FLOAT16);
    const cases::StoredTypes mixed = {"mixed", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_BFLOAT16, HATTN_FLOAT16};
    for (const hattn_algorithm algorithm : kAlgorithms) {
        EXPECT_EQ(matrix_type(plain, mixed, algorithm), HATTN_FLOAT32);
    }
}

// Few rows of a kv head, if there are more keys than one split has; more rows, if flash would leave much idle.
TEST(MatrixKernelChoice, SplitsKeysWhereTilesAreFew) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    // Of two kv heads.
    const auto choice = [](int64_t heads, int64_t rows, int64_t keys, hattn_dtype type) {
        cases::Case c = test::matrix_case("few_tiles");
        c.query_heads = heads;
        c.query_length = rows;
        c.kv_length = keys;
        cases::TypedProblem problem(c, {"alike", type, type, type, type});
        problem.desc.device = HATTN_CUDA;
        const auto plan = test::explanation_of(test::make_plan(test::device_context(), problem.desc).get());
        return plan.at("algorithm").get<std::string>() + " " + plan.at("tile").at("rows").dump();
    };
    for (const hattn_dtype type : {HATTN_FLOAT16, HATTN_BFLOAT16}) {
        EXPECT_EQ(choice(2, 1, 100, type), "flash 64") << "no merge";
        EXPECT_EQ(choice(2, 1, 300, type), "split_kv 16");
        EXPECT_EQ(choice(64, 1, 300, type), "flash 64");
        EXPECT_EQ(choice(64, 1, 1100, type), "split_kv 64") << "heads fill half of one tile each";
        EXPECT_EQ(choice(2, 17, 300, type), "flash 64");
        EXPECT_EQ(choice(4, 2000, 2000, type), "flash 128");
    }
    EXPECT_EQ(choice(32, 1, 300, HATTN_FLOAT32), "split_kv 8");
    EXPECT_EQ(choice(32, 2, 300, HATTN_FLOAT32), "flash 64");
    EXPECT_EQ(choice(32, 2, 1100, HATTN_FLOAT32), "split_kv 64");
}

// As many keys as leave the GPU some work groups for each multiprocessor, of which the emulator's has four.
constexpr int kEmulatedMultiprocessors = 4;

TEST(MatrixKernelChoice, SplitsFewKeysIntoShortOnes) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    const auto split_keys = [](int64_t keys, const cases::StoredTypes &types = kFloat16) {
        cases::Case c = test::matrix_case("splits");
        c.query_length = 1;
        c.kv_length = keys;
        cases::TypedProblem problem(c, types);
        problem.desc.device = HATTN_CUDA;
        return test::explanation_of(test::make_plan(test::device_context(), problem.desc).get()).at("split_keys");
    };
    const auto devices = test::info_of(test::device_context()).at("devices");
    for (const auto &device : devices) {
        if (device.at("name") == "cuda" && device.at("found").at(0).at("compute_units") != kEmulatedMultiprocessors) {
            GTEST_SKIP() << "how long splits are depends on the GPU";
        }
    }
    EXPECT_EQ(split_keys(100), 0) << "flash";
    EXPECT_EQ(split_keys(200), 256);
    EXPECT_EQ(split_keys(1024), 256) << "eight tiles of two kv heads";
    EXPECT_EQ(split_keys(1040), 512);
    EXPECT_EQ(split_keys(2060), 1024);
    EXPECT_EQ(split_keys(20000), 2048);
    // Without tensor cores two splits for each, in chunks of 128 keys.
    constexpr cases::StoredTypes kFloats = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32};
    EXPECT_EQ(split_keys(100, kFloats), 128);
    EXPECT_EQ(split_keys(1024, kFloats), 256) << "eight splits of two kv heads";
    EXPECT_EQ(split_keys(1040, kFloats), 384);
    EXPECT_EQ(split_keys(20000, kFloats), 5120);
}

// They are for GPUs of one capability, and plans take them there alone, by rule, by tunings and by force.
TEST(MatrixKernelChoice, IsOfWarpgroupsWhereTheGpuHasThem) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    const bool here = has_warpgroups();
    for (const int64_t head : {64, 80, 128, 192, 256}) {
        cases::Case c = test::matrix_case("warpgroups");
        c.query_length = c.kv_length = 300;
        c.key_dim = c.value_dim = head;
        for (const cases::StoredTypes &types : {kFloat16, kBfloat16}) {
            cases::TypedProblem problem(c, types);
            problem.desc.device = HATTN_CUDA;
            const auto plan = test::explanation_of(test::make_plan(test::device_context(), problem.desc).get());
            EXPECT_EQ(plan.at("tile").at("warpgroups"), here) << plan;
            nlohmann::json tile = plan.at("tile");
            for (const bool warpgroups : {false, true}) {
                tile["warpgroups"] = warpgroups;
                const nlohmann::json choice = {{"algorithm", "flash"}, {"tile", tile}, {"split_keys", 0}, {"heads", 0}};
                const test::TuningFile file(test::tuning_document({test::tuning_entry(plan.at("class"), choice)}));
                const test::ContextPtr tuned = test::context_with_tuning(file.path());
                const auto of_entry = test::explanation_of(test::make_plan(tuned.get(), problem.desc).get());
                EXPECT_EQ(of_entry.at("decided_by"), "machine");
                EXPECT_TRUE(here || !of_entry.at("tile").at("warpgroups")) << of_entry;
            }
        }
    }
}

TEST(MatrixKernelChoice, OfWarpgroupsIsRefusedElsewhere) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    const bool here = has_warpgroups();
    const std::string name = "flash_cuda_r128k64s4t2h128_bfloat16_warpgroups";
    const test::ContextPtr forced = test::make_context(1, "kernel=" + name);
    cases::TypedProblem problem(test::matrix_case("forced"), kBfloat16);
    problem.desc.device = HATTN_CUDA;
    hattn_plan *made = nullptr;
    const hattn_status status = hattn_plan_create(forced.get(), &problem.desc, &made);
    const test::PlanPtr plan(made);
    EXPECT_EQ(status, here ? HATTN_OK : HATTN_NOT_SUPPORTED);
    if (!here) {
        const std::string message = hattn_last_error(forced.get());
        EXPECT_EQ(message.find("HATTN_FORCE: kernel " + name +
                               " is for compute capability 9.0 and drivers from 12000 on, but the device has compute "
                               "capability "),
                  0)
            << message;
    }
}

// Of two tiles for one size of heads the larger one, where it does not compute many rows that are not there.
TEST(MatrixKernelChoice, IsOfTheTileWithLessWork) {
    if (!test::has_cuda_kernels()) {
        GTEST_SKIP() << "the build has no kernels for cuda";
    }
    const auto tile_rows = [](int64_t rows, float softcap) {
        cases::Case c = test::matrix_case("rows");
        c.query_length = rows;
        c.softcap = softcap;
        cases::TypedProblem problem(c, kFloat16);
        problem.desc.device = HATTN_CUDA;
        const test::PlanPtr plan = test::make_plan(test::device_context(), problem.desc);
        return test::explanation_of(plan.get()).at("tile").at("rows").get<int>();
    };
    EXPECT_EQ(tile_rows(64, 0), 64);
    EXPECT_EQ(tile_rows(65, 0), 128);
    EXPECT_EQ(tile_rows(130, 0), has_warpgroups() ? 128 : 64) << "192 rows, not 256 unless of warpgroups";
    EXPECT_EQ(tile_rows(1100, 0), 128) << "1152 rows either way";
    EXPECT_EQ(tile_rows(1100, 2.0f), 64) << "with hooks there is no other";
}

}  // namespace
