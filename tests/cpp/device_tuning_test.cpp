// Tunings of devices: an entry decides on the device that it was measured on and on no other, and whatever it says
// results stay right. CUDA kernels run on the emulator.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compare.h"
#include "problem.h"
#include "shape.h"
#include "support/devices.h"
#include "support/json_text.h"
#include "support/run.h"
#include "support/tuning_file.h"
#include "trial.h"

namespace {

using namespace hattn;
using nlohmann::json;

cases::Case some_case(int64_t rows, int64_t keys, int64_t head = 64) {
    cases::Case c;
    c.name = "tuned_" + std::to_string(rows) + "_" + std::to_string(keys);
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = rows;
    c.kv_length = keys;
    c.key_dim = c.value_dim = head;
    c.causal = true;
    return c;
}

class DeviceTuning : public testing::TestWithParam<std::string> {
protected:
    json explain(const std::string &database, const cases::Case &c, hattn_algorithm algorithm = HATTN_ALGORITHM_AUTO,
                 bool on_cpu = false) const {
        test::ContextPtr context = test::context_with_tuning(database);
        EXPECT_STREQ(hattn_context_warning(context.get()), "");
        hattn_attention_desc desc = cases::desc_of(c);
        desc.device = on_cpu ? HATTN_CPU : test::device_of(GetParam());
        desc.algorithm = algorithm;
        return test::explanation_of(test::make_plan(context.get(), desc).get());
    }

    // What the rule makes of a case when it is asked for an algorithm, as a choice.
    json choice_of(const cases::Case &c, hattn_algorithm algorithm) const {
        const json plan = explain("rule", c, algorithm);
        return {{"algorithm", plan.at("algorithm")},
                {"tile", plan.at("tile")},
                {"split_keys", plan.at("split_keys")},
                {"heads", 0}};
    }

    json entry_for(const cases::Case &c, const json &choice) const {
        return test::tuning_entry(explain("rule", c).at("class"), choice);
    }
};

TEST_P(DeviceTuning, TheRuleDecidesWithoutAny) {
    const json plan = explain("none", some_case(1, 700));
    EXPECT_EQ(plan.at("decided_by"), "rule");
    EXPECT_EQ(plan.at("algorithm"), "split_kv");
    EXPECT_EQ(plan.at("class").at("target"), GetParam());
    EXPECT_NE(plan.at("class").at("device").at("name"), "");
    EXPECT_EQ(explain("none", some_case(40, 700)).at("algorithm"), "flash");
}

TEST_P(DeviceTuning, AnEntryDecidesAboutClassesNearIts) {
    const cases::Case c = some_case(1, 700);
    const test::TuningFile file(test::tuning_document({entry_for(c, choice_of(c, HATTN_ALGORITHM_FLASH))}));
    const json plan = explain(file.path(), c);
    EXPECT_EQ(plan.at("algorithm"), "flash");
    EXPECT_EQ(plan.at("split_keys"), 0);
    EXPECT_EQ(plan.at("decided_by"), "machine");
    EXPECT_NE(plan.at("why").get<std::string>().find("its class"), std::string::npos) << plan;
    EXPECT_EQ(explain(file.path(), some_case(2, 2000)).at("algorithm"), "flash");
    EXPECT_EQ(explain(file.path(), some_case(1, 5000)).at("decided_by"), "rule") << "too many keys";
    EXPECT_EQ(explain(file.path(), c, HATTN_ALGORITHM_SPLIT_KV).at("decided_by"), "rule") << "asked for split_kv";
    EXPECT_NE(explain(file.path(), c, HATTN_ALGORITHM_AUTO, true).at("decided_by"), "machine") << "on the CPU";
}

// As they were written before there were tiles of warpgroups.
TEST_P(DeviceTuning, AnEntryNeedNotSayWarpgroups) {
    const cases::Case c = some_case(1, 700);
    json choice = choice_of(c, HATTN_ALGORITHM_FLASH);
    ASSERT_EQ(choice["tile"].erase("warpgroups"), 1u);
    const test::TuningFile file(test::tuning_document({entry_for(c, choice)}));
    EXPECT_EQ(explain(file.path(), c).at("decided_by"), "machine");
}

TEST_P(DeviceTuning, AnEmptyChoiceLeavesTheRule) {
    const cases::Case c = some_case(1, 700);
    const test::TuningFile file(test::tuning_document({entry_for(c, nullptr)}));
    const json plan = explain(file.path(), c);
    EXPECT_EQ(plan.at("decided_by"), "rule");
    EXPECT_NE(plan.at("why").get<std::string>().find("says for rows 1, keys 512 that the default stays; "),
              std::string::npos)
        << plan;
}

// Nobody knows which kernels of a device give the same bits.
TEST_P(DeviceTuning, InvariantEntriesDoNotDecide) {
    const cases::Case c = some_case(1, 700);
    json entry = entry_for(c, choice_of(c, HATTN_ALGORITHM_SPLIT_KV));
    entry["invariant"] = true;
    const test::TuningFile file(test::tuning_document({entry}));
    EXPECT_EQ(explain(file.path(), c).at("decided_by"), "rule");
}

TEST_P(DeviceTuning, EntriesOfTheCpuAreNotForDevices) {
    const cases::Case c = some_case(1, 700);
    const json of_cpu = explain("rule", c, HATTN_ALGORITHM_FLASH, true);
    json problem_class = of_cpu.at("class");
    problem_class["algorithm"] = "auto";
    const json choice = {{"algorithm", "flash"}, {"tile", of_cpu.at("tile")}, {"split_keys", 0}, {"heads", 0}};
    const test::TuningFile file(test::tuning_document({test::tuning_entry(problem_class, choice)}));
    EXPECT_EQ(explain(file.path(), c, HATTN_ALGORITHM_AUTO, true).at("decided_by"), "machine");
    EXPECT_EQ(explain(file.path(), c).at("decided_by"), "rule");
}

// Entries stay in the file, for when that device is back, and decide about nothing.
TEST_P(DeviceTuning, EntriesOfAnotherDeviceOrItsKernelsDoNotDecide) {
    const cases::Case c = some_case(1, 700);
    const json entry = entry_for(c, choice_of(c, HATTN_ALGORITHM_FLASH));
    for (const auto &[name, value] : entry.at("class").at("device").items()) {
        json other = entry;
        other["class"]["device"][name] = value.is_string() ? json("other") : json(4711);
        const test::TuningFile file(test::tuning_document({other}));
        // A CPU's is what the machine has at the moment.
        const bool decides = GetParam() == "opencl" && name == "memory_bytes";
        EXPECT_EQ(explain(file.path(), c).at("decided_by"), decides ? "machine" : "rule") << name;
    }
    json target = entry;
    target["class"]["target"] = "z80";
    const test::TuningFile file(test::tuning_document({target}));
    EXPECT_EQ(explain(file.path(), c).at("decided_by"), "rule") << "a device that the build knows nothing of";
}

TEST_P(DeviceTuning, InfoCountsTheEntriesOfADevice) {
    const cases::Case c = some_case(1, 700);
    json other = entry_for(c, nullptr);
    other["class"]["device"]["driver"] = "other";
    const test::TuningFile file(
        test::tuning_document({entry_for(c, nullptr), entry_for(some_case(40, 700), nullptr), other}));
    test::ContextPtr context = test::context_with_tuning(file.path());
    const json info = test::info_of(context.get());
    EXPECT_EQ(info.at("tuning_database").at("entries"), 3);
    for (const json &device : info.at("devices")) {
        if (device.at("name") == GetParam()) {
            EXPECT_EQ(device.at("found").at(0).at("tuning_entries"), 2);
        }
    }
}

// A tile with room for larger heads may be faster, but not if it computes several times as much.
TEST_P(DeviceTuning, TilesThatDoNotFitLeaveTheAlgorithm) {
    const cases::Case c = some_case(1, 700);
    const auto tile_of = [&](int64_t head) {
        return choice_of(some_case(1, 700, head), HATTN_ALGORITHM_SPLIT_KV).at("tile");
    };
    json unknown = tile_of(64);
    unknown["rows"] = 7;
    for (const auto &[tile, expected] :
         {std::pair{tile_of(64), 64}, {tile_of(128), 128}, {tile_of(256), 64}, {tile_of(32), 64}, {unknown, 64}}) {
        json choice = choice_of(c, HATTN_ALGORITHM_SPLIT_KV);
        choice["tile"] = tile;
        choice["split_keys"] = 128;
        const test::TuningFile file(test::tuning_document({entry_for(c, choice)}));
        const json plan = explain(file.path(), c);
        EXPECT_EQ(plan.at("decided_by"), "machine");
        EXPECT_EQ(plan.at("tile").at("head"), expected) << tile;
        EXPECT_EQ(plan.at("split_keys"), 128);
    }
}

TEST_P(DeviceTuning, DamagedEntriesAreFound) {
    const cases::Case c = some_case(1, 700);
    const json entry = entry_for(c, choice_of(c, HATTN_ALGORITHM_FLASH));
    json no_driver = entry, no_slices = entry;
    no_driver["class"]["device"].erase("driver");
    no_slices["choice"]["tile"].erase("slices");
    for (const auto &[bad, why] : {std::pair{no_driver, "driver is missing"}, {no_slices, "slices is missing"}}) {
        const test::TuningFile file(test::tuning_document({bad}));
        test::ContextPtr context = test::context_with_tuning(file.path());
        EXPECT_NE(std::string(hattn_context_warning(context.get())).find(why), std::string::npos)
            << hattn_context_warning(context.get());
    }
}

// Other splits make other numbers of states, for all of which there has to be room.
TEST_P(DeviceTuning, ResultsAreRight) {
    cases::Case c = some_case(3, 300, 32);
    c.batch = 2;
    c.kv_lengths = {300, 101};
    c.sinks = cases::Sinks::kNormal;
    for (const int64_t split_keys : {0, 16, 128, 4096}) {
        json choice = choice_of(c, split_keys > 0 ? HATTN_ALGORITHM_SPLIT_KV : HATTN_ALGORITHM_FLASH);
        choice["split_keys"] = split_keys;
        const test::TuningFile file(test::tuning_document({entry_for(c, choice)}));
        ASSERT_EQ(explain(file.path(), c).at("decided_by"), "machine");
        ASSERT_EQ(explain(file.path(), c).at("split_keys"), split_keys);
        test::ContextPtr context = test::context_with_tuning(file.path());
        for (const bool windowed : {false, true}) {
            c.window_left = windowed ? 200 : -1;
            test::Prepared data(c);
            data.problem.desc.device = test::device_of(GetParam());
            const test::Outcome outcome = test::run(context.get(), data.problem);
            ASSERT_TRUE(outcome.ok()) << outcome.text();
            EXPECT_EQ(cases::difference(data.problem, data.expected), "") << split_keys;
        }
        c.window_left = -1;
    }
}

// With everything that a problem may have: scales, hooks' operands.
TEST_P(DeviceTuning, TrialsHaveTheirTensorsOnTheDevice) {
    autotune::Shape shape;
    shape.query_heads = 4;
    shape.kv_heads = 2;
    shape.query_length = 5;
    shape.kv_length = 300;
    shape.key_dim = shape.value_dim = 40;
    shape.bias = shape.mask = true;
    shape.dtype = HATTN_INT4;
    shape.device = test::device_of(GetParam());
    autotune::Problems problems;
    problems.push_back(autotune::make_problem(shape));
    autotune::TunedProblem &problem = *problems.front();
    for (const hattn_tensor *tensor :
         {&problem.device_args().q, &problem.device_args().k, &problem.device_args().v_scale,
          &problem.device_args().bias, &problem.device_args().mask, &problem.device_args().out}) {
        EXPECT_EQ(tensor->device, shape.device);
        EXPECT_NE(tensor->data, nullptr);
    }
    EXPECT_EQ(problem.args.q.device, HATTN_CPU);
    for (const hattn_algorithm algorithm : {HATTN_ALGORITHM_SPLIT_KV, HATTN_ALGORITHM_FLASH}) {
        autotune::Trial trial(problems, "rule", 1, algorithm);
        problem.fill_outputs();
        problem.read_output();
        EXPECT_NE(cases::difference(problem.twin, problem.evaluate()), "") << "of another trial";
        trial.execute(0);
        problem.read_output();
        EXPECT_EQ(cases::difference(problem.twin, problem.evaluate()), "");
    }
}

TEST_P(DeviceTuning, TheLibrarysOwnQueueMayBeGiven) {
    hattn_queue queue = HATTN_QUEUE_INIT;
    ASSERT_EQ(hattn_device_queue(test::device_of(GetParam()), 0, &queue), HATTN_OK) << hattn_last_error(nullptr);
    EXPECT_NE(GetParam() == "cuda" ? queue.context : queue.queue, nullptr);
    test::Prepared data(some_case(3, 50));
    data.problem.desc.device = test::device_of(GetParam());
    data.problem.args.queue = &queue;
    const test::Outcome outcome = test::run(test::device_context(), data.problem, HATTN_ALGORITHM_AUTO);
    ASSERT_TRUE(outcome.ok()) << outcome.text();
    EXPECT_EQ(cases::difference(data.problem, data.expected), "");
}

TEST(DeviceQueue, ErrorsNameTheArgument) {
    hattn_queue queue = HATTN_QUEUE_INIT;
    EXPECT_EQ(hattn_device_queue(HATTN_OPENCL, 0, nullptr), HATTN_INVALID_ARGUMENT);
    EXPECT_STREQ(hattn_last_error(nullptr), "queue: is null");
    EXPECT_EQ(hattn_device_queue(HATTN_CPU, 0, &queue), HATTN_INVALID_ARGUMENT);
    EXPECT_STREQ(hattn_last_error(nullptr), "device: is 0, but must be 1 (opencl) or 2 (cuda)");
    EXPECT_EQ(hattn_device_queue(HATTN_OPENCL, 7, &queue), HATTN_INVALID_ARGUMENT);
    EXPECT_STREQ(hattn_last_error(nullptr), "device_id: is 7, but must be 0 unless device is 2 (cuda)");
    EXPECT_EQ(hattn_device_queue(HATTN_CUDA, -1, &queue), HATTN_INVALID_ARGUMENT);
    EXPECT_STREQ(hattn_last_error(nullptr), "device_id: is -1, but must be at least 0");
    for (const char *device : {"opencl", "cuda"}) {
        if (!test::device_unusable(device).empty()) {
            EXPECT_EQ(hattn_device_queue(test::device_of(device), 0, &queue), HATTN_NOT_SUPPORTED);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(On, DeviceTuning, testing::ValuesIn(test::usable_devices()),
                         [](const auto &run) { return run.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceTuning);

}  // namespace
