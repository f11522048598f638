// Tensors in OpenCL memory, in a queue of the application's: every kind of case against the oracle, the same bits as
// from host memory, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "support/cache_model.h"
#include "support/case_param.h"
#include "support/devices.h"
#include "support/opencl_queue.h"
#include "support/run.h"
#include "support/workspace.h"

namespace {

using namespace hattn;

// The tensors of a problem in OpenCL memory.
struct DeviceTensors {
    DeviceTensors(const test::OpenClQueue &queue, cases::Problem &problem)
        : tensors{{{queue, problem.q, 0},
                   {queue, problem.k, 64},
                   {queue, problem.v, 4096},
                   {queue, problem.out, 128},
                   {queue, problem.lse, 64},
                   {queue, problem.bias, 192},
                   {queue, problem.mask, 7},
                   {queue, problem.scores, 64}}} {}

    void give_to(hattn_attention_args &args) const {
        hattn_tensor *const given[] = {&args.q,   &args.k,    &args.v,    &args.out,
                                       &args.lse, &args.bias, &args.mask, &args.scores};
        for (size_t i = 0; i < tensors.size(); ++i) {
            *given[i] = tensors[i].view();
        }
    }
    void fetch_outputs() const {
        tensors[3].fetch();
        tensors[4].fetch();
        tensors[7].fetch();
    }

    std::array<test::OpenClTensor, 8> tensors;
};

class OpenCl : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string why_not = test::device_unusable("opencl"); !why_not.empty()) {
            GTEST_SKIP() << why_not;
        }
        queue_ = std::make_unique<test::OpenClQueue>();
    }

    test::PlanPtr plan_of(cases::Problem &problem, hattn_algorithm algorithm) {
        problem.desc.device = HATTN_OPENCL;
        problem.desc.algorithm = algorithm;
        return test::make_plan(test::device_context(), problem.desc);
    }

    // Executes on the device, and leaves results in the problem's own memory.
    test::Outcome run(cases::Problem &problem, hattn_algorithm algorithm, bool with_workspace) {
        const test::PlanPtr plan = plan_of(problem, algorithm);
        problem.fill_outputs();
        const DeviceTensors tensors(*queue_, problem);
        hattn_attention_args args = problem.args;
        tensors.give_to(args);
        const hattn_queue handle = queue_->handle();
        args.queue = &handle;
        size_t bytes = 0, device_bytes = 0;
        hattn_plan_workspace_size(plan.get(), &bytes);
        hattn_plan_device_workspace_size(plan.get(), &device_bytes);
        test::Workspace workspace(bytes);
        workspace.give_to(args);
        const std::shared_ptr<void> device_workspace = queue_->memory(std::max<size_t>(device_bytes, 1));
        if (with_workspace) {
            args.device_workspace = device_workspace.get();
            args.device_workspace_size = 2 * device_bytes;  // which there are not, but no more is to be touched
        }
        const test::Outcome outcome = test::outcome_of(hattn_plan_execute(plan.get(), &args));
        queue_->finish();
        EXPECT_TRUE(workspace.intact());
        tensors.fetch_outputs();
        return outcome;
    }

    std::unique_ptr<test::OpenClQueue> queue_;
};

struct OpenClCase : OpenCl, testing::WithParamInterface<test::CaseParam> {};

TEST_P(OpenClCase, MatchesOracleAndHostMemory) {
    for (const hattn_algorithm algorithm : test::kDeviceAlgorithms) {
        test::Prepared data(*GetParam().spec);
        data.problem.desc.device = HATTN_OPENCL;
        ASSERT_TRUE(test::run(test::device_context(), data.problem, algorithm).ok());
        const std::vector<float> from_host = test::output_values(data.problem);
        for (const bool with_workspace : {true, false}) {
            const test::Outcome outcome = run(data.problem, algorithm, with_workspace);
            ASSERT_TRUE(outcome.ok()) << outcome.text();
            EXPECT_EQ(cases::difference(data.problem, data.expected), "") << cases::describe(*GetParam().spec);
            EXPECT_TRUE(test::same_bits(test::output_values(data.problem), from_host));
        }
    }
}

// One case in twenty-three: of every kind a few.
std::vector<test::CaseParam> some_cases() {
    std::vector<test::CaseParam> all = test::case_params(test::device_supports), some;
    for (size_t i = 0; i < all.size(); i += 23) {
        some.push_back(all[i]);
    }
    return some;
}

INSTANTIATE_TEST_SUITE_P(Some, OpenClCase, testing::ValuesIn(some_cases()),
                         [](const auto &run) { return run.param.spec->name; });

cases::Case small() {
    cases::Case c;
    c.name = "device_tensors";
    c.query_length = 5;
    c.kv_length = 40;
    return c;
}

// Executes with one thing wrong.
template<typename Change>
test::Outcome refused(test::OpenClQueue &queue, hattn_context *context, Change change) {
    cases::Problem problem(small());
    problem.desc.device = HATTN_OPENCL;
    problem.fill_outputs();
    const test::PlanPtr plan = test::make_plan(context, problem.desc);
    const DeviceTensors tensors(queue, problem);
    hattn_attention_args args = problem.args;
    tensors.give_to(args);
    hattn_queue handle = queue.handle();
    args.queue = &handle;
    size_t bytes = 0;
    hattn_plan_workspace_size(plan.get(), &bytes);
    test::Workspace workspace(bytes);
    workspace.give_to(args);
    change(args, handle, problem);
    test::Outcome outcome = test::outcome_of(hattn_plan_execute(plan.get(), &args));
    queue.finish();
    tensors.fetch_outputs();
    EXPECT_TRUE(problem.outputs_untouched());
    return outcome;
}

TEST_F(OpenCl, RefusesWhatIsElsewhere) {
    const auto fails = [&](auto change, hattn_status status, const std::string &words) {
        const test::Outcome outcome = refused(*queue_, test::device_context(), change);
        EXPECT_EQ(outcome.status, status) << outcome.text();
        EXPECT_NE(outcome.message.find(words), std::string::npos) << outcome.message;
    };
    using Args = hattn_attention_args;
    using Queue = hattn_queue;
    using Problem = cases::Problem;
    fails([](Args &args, Queue &, Problem &problem) { args.k = problem.args.k; }, HATTN_INVALID_ARGUMENT,
          "k: device is 0 (cpu), but that of q is 1 (opencl)");
    fails([](Args &args, Queue &, Problem &) { args.v.device = HATTN_CUDA; }, HATTN_NOT_SUPPORTED,
          "v: device is 2 (cuda), but must be that of the plan, 1 (opencl), or 0 (cpu)");
    fails([](Args &args, Queue &, Problem &) { args.q.device_id = 3; }, HATTN_INVALID_ARGUMENT,
          "q: device_id is 3, but the plan's device_id is 0");
    fails([](Args &args, Queue &, Problem &) { args.q.byte_offset += 2; }, HATTN_INVALID_ARGUMENT,
          "q: byte_offset is 2");
    fails(
        [](Args &args, Queue &, Problem &) {
            args.out.data = args.q.data;
            args.out.byte_offset = args.q.byte_offset;
        },
        HATTN_INVALID_ARGUMENT, "out: its memory");
    fails([](Args &, Queue &queue, Problem &) { queue.queue = nullptr; }, HATTN_INVALID_ARGUMENT,
          "queue: queue is null");
    fails([](Args &, Queue &queue, Problem &) { queue.struct_size = 1; }, HATTN_INVALID_ARGUMENT, "queue.struct_size");
    fails(
        [](Args &args, Queue &, Problem &) {
            args.device_workspace = args.q.data;
            args.device_workspace_size = 16;
        },
        HATTN_WORKSPACE_TOO_SMALL, "device_workspace_size: is 16, but the plan needs");
}

TEST_F(OpenCl, RefusesMemoryThatIsTooSmallOrAPart) {
    const std::shared_ptr<void> small = queue_->memory(64), part = queue_->part(4096, 1 << 16);
    const test::OpenClQueue other;
    const std::shared_ptr<void> elsewhere = other.memory(1 << 20);
    const auto fails = [&](auto change, const std::string &words) {
        const test::Outcome outcome =
            refused(*queue_, test::device_context(), [&](hattn_attention_args &args, auto &&...) { change(args); });
        EXPECT_EQ(outcome.status, HATTN_INVALID_ARGUMENT) << outcome.text();
        EXPECT_NE(outcome.message.find(words), std::string::npos) << outcome.message;
    };
    for (hattn_tensor hattn_attention_args::*tensor : {&hattn_attention_args::q, &hattn_attention_args::out}) {
        const std::string name = tensor == &hattn_attention_args::q ? "q: " : "out: ";
        const auto with = [&](void *memory) {
            return [tensor, memory](hattn_attention_args &args) {
                (args.*tensor).data = memory;
                (args.*tensor).byte_offset = 0;
            };
        };
        fails(with(small.get()), name + "reaches to byte");
        fails(with(part.get()), "a part of another cl_mem");
        fails(with(elsewhere.get()), name + "its cl_mem is of the context");
        fails([tensor](hattn_attention_args &args) { (args.*tensor).byte_offset += 1 << 20; },
              name + "reaches to byte");
    }
    fails(
        [&](hattn_attention_args &args) {
            args.device_workspace = small.get();
            args.device_workspace_size = size_t{1} << 40;
        },
        "device_workspace: reaches to byte");
}

TEST_F(OpenCl, CachesThatNoKernelServes) {
    const auto status = [](int64_t capacity, int64_t dim) {
        hattn_kv_cache_desc desc = test::cache_desc(1, 1, capacity, dim, dim);
        desc.dtype = HATTN_INT8;
        desc.device = HATTN_OPENCL;
        hattn_kv_cache *cache = nullptr;
        return test::outcome_of(hattn_kv_cache_create(test::device_context(), &desc, &cache));
    };
    test::Outcome outcome = status(64, 257);
    EXPECT_EQ(outcome.status, HATTN_NOT_SUPPORTED);
    EXPECT_NE(outcome.message.find("the larger is 257, but kernels for opencl hold heads of at most 256"),
              std::string::npos)
        << outcome.message;
    outcome = status((int64_t{1} << 24) + 16, 128);
    EXPECT_EQ(outcome.status, HATTN_NOT_SUPPORTED);
    EXPECT_NE(outcome.message.find("capacity: is 16777232, which makes 2147485696 elements of a side"),
              std::string::npos)
        << outcome.message;
}

TEST_F(OpenCl, RefusesQueuesOutOfOrder) {
    constexpr uint64_t kOutOfOrder = 1;
    test::OpenClQueue unordered(kOutOfOrder);
    const test::Outcome outcome = refused(unordered, test::device_context(), [](auto &&...) {});
    EXPECT_EQ(outcome.status, HATTN_NOT_SUPPORTED) << outcome.text();
    EXPECT_NE(outcome.message.find("out of order"), std::string::npos) << outcome.message;
}

TEST(HostPlans, TakeNeitherQueueNorDeviceWorkspace) {
    cases::Problem problem(small());
    hattn_queue queue = HATTN_QUEUE_INIT;
    problem.args.queue = &queue;
    EXPECT_EQ(test::run(test::device_context(), problem).message, "queue: is given, but the plan's device is 0 (cpu)");
    problem.args.queue = nullptr;
    problem.args.device_workspace = &queue;
    EXPECT_EQ(test::run(test::device_context(), problem).message,
              "device_workspace: is given, but the plan's device is 0 (cpu)");
}

// Builds without devices.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenClCase);

}  // namespace
