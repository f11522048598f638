// Kernel packs with kernels of devices: they run by force and where a tuning says so, and nothing else changes. CUDA
// kernels run on the emulator.
#include <gtest/gtest.h>

#include <unistd.h>

#include "scoped_variable.h"
#include "support/devices.h"
#include "support/json_text.h"
#include "support/pack.h"
#include "support/refusal.h"
#include "support/stored_types.h"
#include "support/tuning_file.h"
#include "support/typed_run.h"

namespace {

using namespace hattn;
using nlohmann::json;

constexpr cases::StoredTypes kFloat32 = {"float32", HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_FLOAT32};

// In tests/cpp/CMakeLists.txt.
struct Sample {
    std::string kernel;
    bool softcap = false;
    const cases::StoredTypes &types = kFloat32;
};

std::vector<Sample> samples_of(const std::string &device) {
    if (device == "opencl") {
        return {{"flash_opencl_r8k48s8t2h32"}, {"split_kv_opencl_r4k48s8t1h32_softcap", true}};
    }
    return {{"flash_cuda_r32k48s8t4h32"},
            {"split_kv_cuda_r4k48s8t1h32_softcap", true},
            // There is a float32 kernel with this tile.
            {"flash_cuda_r32k32s8t2h64_float16", false, test::kStoredTypes[0]}};
}

cases::Case some_case(bool softcap = false) {
    cases::Case c;
    c.name = "packed";
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = 5;
    c.kv_length = 131;
    c.key_dim = c.value_dim = 29;
    c.causal = true;
    c.softcap = softcap ? 1.5f : 0.0f;
    return c;
}

struct SampleProblem : cases::TypedProblem {
    SampleProblem(const Sample &sample, const std::string &device)
        : TypedProblem(some_case(sample.softcap), sample.types) {
        desc.device = test::device_of(device);
    }
};

test::Outcome load(hattn_context *context, const std::string &path) {
    return test::outcome_of(hattn_context_load_kernels(context, path.c_str()), context);
}

class DevicePacks : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (!test::sample_device_pack()) {
            GTEST_SKIP() << "this build has no hattn-kernelgen, so no pack";
        }
    }

    // A context with the pack in a file of its own, so that another test has not loaded it.
    test::ContextPtr context_with_sample(const std::string &force = "", const std::string &tuning = "rule") {
        const std::string file = folder_.file("pack_" + std::to_string(++files_) + ".so");
        test::write_bytes(file, test::read_bytes(test::sample_device_pack()));
        const cases::ScopedVariable packs("HATTN_PACKS", file);
        hattn_context_desc desc = HATTN_CONTEXT_DESC_INIT;
        desc.tuning_database = tuning.c_str();
        test::NewContext made = test::new_context(force, &desc);
        EXPECT_TRUE(made.outcome.ok()) << made.outcome.text();
        return std::move(made.context);
    }

    std::string last_file() const {
        return folder_.file("pack_" + std::to_string(files_) + ".so");
    }

    SampleProblem problem_for(const Sample &sample) const {
        return {sample, GetParam()};
    }

    test::TestFolder folder_;
    int files_ = 0;
};

TEST_P(DevicePacks, KernelsRunByForce) {
    for (const Sample &sample : samples_of(GetParam())) {
        const test::ContextPtr context = context_with_sample("kernel=" + sample.kernel);
        SampleProblem problem = problem_for(sample);
        test::expect_oracle(context.get(), problem, HATTN_FLOAT32);
        const json plan = test::explanation_of(test::make_plan(context.get(), problem.desc).get());
        EXPECT_EQ(plan.at("kernel"), sample.kernel);
        EXPECT_EQ(plan.at("pack"), last_file());
    }
}

TEST_P(DevicePacks, InfoTellsWhereKernelsAreFrom) {
    const test::ContextPtr context = context_with_sample();
    size_t packed = 0;
    const json info = test::info_of(context.get());
    for (const json &device : info.at("devices")) {
        for (const json &kernel : device.at("kernels")) {
            packed += kernel.at("pack") == last_file();
            EXPECT_TRUE(kernel.at("pack").is_null() || kernel.at("pack") == last_file()) << kernel;
        }
    }
    EXPECT_EQ(info.at("packs").at(0).at("kernels"), packed);
    EXPECT_GE(packed, samples_of(GetParam()).size());
}

TEST_P(DevicePacks, LoadingChangesNoChoice) {
    const test::ContextPtr with = context_with_sample(), without = test::context_with_tuning("rule");
    for (const Sample &sample : samples_of(GetParam())) {
        const hattn_attention_desc desc = problem_for(sample).desc;
        EXPECT_EQ(test::explanation_of(test::make_plan(with.get(), desc).get()),
                  test::explanation_of(test::make_plan(without.get(), desc).get()));
    }
}

TEST_P(DevicePacks, AnEntryOfATuningTakesATileOfAPack) {
    for (const Sample &sample : samples_of(GetParam())) {
        SampleProblem problem = problem_for(sample);
        const json forced = test::explanation_of(
            test::make_plan(context_with_sample("kernel=" + sample.kernel).get(), problem.desc).get());
        const test::ContextPtr usual = context_with_sample();
        const json choice = {{"algorithm", forced.at("algorithm")},
                             {"tile", forced.at("tile")},
                             {"split_keys", forced.at("split_keys")},
                             {"heads", 0}};
        const test::TuningFile file(test::tuning_document({test::tuning_entry(
            test::explanation_of(test::make_plan(usual.get(), problem.desc).get()).at("class"), choice)}));

        const test::ContextPtr tuned = context_with_sample("", file.path());
        const json plan = test::explanation_of(test::make_plan(tuned.get(), problem.desc).get());
        EXPECT_EQ(plan.at("kernel"), sample.kernel);
        EXPECT_EQ(plan.at("decided_by"), "machine");
        EXPECT_EQ(plan.at("pack"), last_file());
        test::expect_oracle(tuned.get(), problem, HATTN_FLOAT32);

        // Without the pack, the algorithm with a tile of the library.
        const test::ContextPtr bare = test::context_with_tuning(file.path());
        const json without = test::explanation_of(test::make_plan(bare.get(), problem.desc).get());
        EXPECT_EQ(without.at("algorithm"), plan.at("algorithm"));
        EXPECT_TRUE(without.at("pack").is_null());
    }
}

// Drivers are given its code, and may be asked for what they made of it at any time.
TEST_P(DevicePacks, OutliveTheirContextsAndFiles) {
    const Sample sample = samples_of(GetParam()).front();
    for (int turn = 0; turn < 3; ++turn) {
        test::ContextPtr context = context_with_sample("kernel=" + sample.kernel);
        SampleProblem problem = problem_for(sample);
        const test::PlanPtr plan = test::make_plan(context.get(), problem.desc);
        context.reset();
        unlink(last_file().c_str());
        problem.fill_outputs();
        const test::Outcome outcome = test::execute(plan.get(), problem.args);
        ASSERT_TRUE(outcome.ok()) << outcome.text();
        problem.read_output();
        EXPECT_EQ(cases::difference(problem.twin, problem.evaluate(HATTN_FLOAT32)), "");
    }
}

TEST_P(DevicePacks, WrongRowsAreRefused) {
    struct Wrong {
        std::string from, to;
        hattn_status status;
        std::vector<std::string> words;
    };
    const std::string kernel = samples_of(GetParam()).front().kernel;
    const std::string row = "\"name\":\"" + kernel + "\",\"device\":\"" + GetParam() + "\"";
    for (const Wrong &wrong :
         {Wrong{row, "\"name\":\"" + kernel + "\",\"device\":\"abacus\"", HATTN_NOT_SUPPORTED, {kernel, "abacus"}},
          Wrong{row + ",\"kind\":\"flash\"", row + ",\"kind\":\"spark\"", HATTN_NOT_SUPPORTED, {kernel, "spark"}},
          Wrong{"\"shared_bytes\"", "\"scared_bytes\"", HATTN_INVALID_ARGUMENT, {"shared_bytes"}},
          Wrong{"\"device_kernels\"", "\"device_colonels\"", HATTN_INVALID_ARGUMENT, {"device_kernels"}}}) {
        const test::ContextPtr context = test::make_context();
        test::write_bytes(folder_.file("wrong.so"),
                          test::changed_pack(
                              [&](std::string &, std::string &text) { test::replace_once(text, wrong.from, wrong.to); },
                              test::sample_device_pack()));
        EXPECT_EQ(test::mismatch(load(context.get(), folder_.file("wrong.so")), {wrong.status, wrong.words}), "")
            << wrong.to;
    }
}

INSTANTIATE_TEST_SUITE_P(On, DevicePacks, testing::ValuesIn(test::usable_devices()),
                         [](const auto &run) { return run.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DevicePacks);

TEST(DevicePackInfo, WithoutPacksAllKernelsAreTheLibrarys) {
    const json info = test::info_of(test::device_context());
    EXPECT_EQ(info.at("packs").size(), 0u);
    for (const json &device : info.at("devices")) {
        for (const json &kernel : device.at("kernels")) {
            EXPECT_TRUE(kernel.at("pack").is_null()) << kernel;
        }
    }
}

}  // namespace
