// Devices and queues by the C++ interface: CUDA with the driver in stub_cuda, whose kernels compute nothing, OpenCL
// where the machine has it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "hattn/hattn.hpp"
#include "support/cuda_execute.h"
#include "support/opencl_queue.h"

namespace {

using namespace hattn;
using test::in_stream;
using test::new_context;
using test::new_stream;
using CppQueue = test::CudaQueue;

// A plan for the GPU and arguments whose memory, as far as the stub is concerned, is there.
struct OnGpu {
    explicit OnGpu(const cases::Case &c) : problem(c), plan(make_plan(context, problem.desc)) {
        args = problem.args;
        for (hattn_tensor *tensor : {&args.q, &args.k, &args.v, &args.out, &args.lse}) {
            tensor->device = HATTN_CUDA;
        }
        host.emplace_back(plan.workspace_size());
        device.resize(plan.device_workspace_size() + kAlignment);
        args.workspace = host.front().data();
        args.workspace_size = host.front().size();
        const auto address = reinterpret_cast<uintptr_t>(device.data());
        args.device_workspace = device.data() + (kAlignment - address % kAlignment) % kAlignment;
        args.device_workspace_size = plan.device_workspace_size();
    }
    static Plan make_plan(Context &of, hattn_attention_desc desc) {
        desc.device = HATTN_CUDA;
        return Plan(of, desc);
    }

    static constexpr size_t kAlignment = 256;
    cases::Problem problem;
    Context context;
    Plan plan;
    hattn_attention_args args;
    std::vector<Workspace> host;
    std::vector<char> device;
};

TEST_F(CppQueue, IsAStreamAndItsContext) {
    OnGpu on_gpu(test::some_keys(3));
    void *const context = new_context(0), *const stream = new_stream(context);
    const Queue queue(stream), same(stream, context), default_stream(nullptr, context);
    EXPECT_EQ(queue.struct_size, sizeof(hattn_queue));
    on_gpu.args.queue = &queue;
    on_gpu.plan.execute(on_gpu.args);  // loads kernels
    start_log();
    for (const Queue *given : {&queue, &same, &default_stream}) {
        on_gpu.args.queue = given;
        on_gpu.plan.execute(on_gpu.args);
    }
    EXPECT_TRUE(log_lines("wait").empty());
    EXPECT_TRUE(log_lines("allocate").empty());
    const std::vector<std::string> launches = log_lines("launch");
    ASSERT_EQ(launches.size() % 3, 0u);
    ASSERT_GT(launches.size(), 0u);
    for (size_t i = 0; i < launches.size(); ++i) {
        void *const expected = i < launches.size() / 3 * 2 ? stream : nullptr;
        EXPECT_TRUE(launches[i].ends_with(in_stream(expected))) << launches[i];
    }
}

TEST_F(CppQueue, OfTheLibraryIsThePrimaryContextsDefaultStream) {
    const hattn_queue own = device_queue(HATTN_CUDA, 1);
    void *primary = nullptr;
    test::driver<int(void **, int)>("cuDevicePrimaryCtxRetain")(&primary, 1);
    EXPECT_EQ(own.context, primary);
    EXPECT_EQ(own.queue, nullptr);
    EXPECT_NE(device_queue(HATTN_CUDA).context, primary);
    // Of one GPU, while the plan is for another.
    OnGpu on_gpu(test::some_keys(3));
    on_gpu.args.queue = &own;
    try {
        on_gpu.plan.execute(on_gpu.args);
        FAIL() << "the queue is of GPU 1";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), HATTN_INVALID_ARGUMENT);
        EXPECT_STREQ(error.what(), "queue: its context is of GPU 1, but the plan's device_id is 0");
    }
}

TEST_F(CppQueue, TakesTheRowsOfACache) {
    Context context;
    void *const in_context = new_context(0);
    const Queue queue(new_stream(in_context));
    KvCacheDesc desc;
    desc.device = HATTN_CUDA;
    desc.queue = &queue;
    desc.batch = 1;
    desc.kv_heads = 2;
    desc.capacity = 16;
    desc.key_dim = desc.value_dim = 64;
    KvCache cache(context, desc);
    const std::vector<float> rows(2 * 3 * 64, 0.5f);
    const hattn_tensor keys = bhsd(rows.data(), {1, 2, 3, 64});
    start_log();
    cache.append(keys, keys);
    const std::vector<std::string> launches = log_lines("launch");
    ASSERT_FALSE(launches.empty());
    for (const std::string &line : launches) {
        EXPECT_TRUE(line.ends_with(in_stream(queue.queue))) << line;
    }
}

TEST(CppOpenClQueue, ResultsAreInTheApplicationsMemory) {
    if (const std::string why_not = test::device_unusable("opencl"); !why_not.empty()) {
        GTEST_SKIP() << why_not;
    }
    test::Prepared data(test::some_keys(5));
    data.problem.fill_outputs();
    data.problem.desc.device = HATTN_OPENCL;
    const test::OpenClQueue application;
    const Queue queue(application.handle().queue);
    const test::OpenClTensor q(application, data.problem.q, 0), k(application, data.problem.k, 0),
        v(application, data.problem.v, 64), out(application, data.problem.out, 128),
        lse(application, data.problem.lse, 4);
    hattn_attention_args args = data.problem.args;
    args.q = q.view();
    args.k = k.view();
    args.v = v.view();
    args.out = out.view();
    args.lse = lse.view();
    args.queue = &queue;
    Context context;
    context.attention(data.problem.desc, args);
    out.fetch();
    lse.fetch();
    EXPECT_EQ(cases::difference(data.problem, data.expected), "");
}

TEST(CppDevices, AnErrorSaysWhichThereAre) {
    for (const auto &[device, name] : {std::pair(HATTN_OPENCL, "opencl"), std::pair(HATTN_CUDA, "cuda")}) {
        try {
            const hattn_queue queue = device_queue(device);
            EXPECT_NE(device == HATTN_CUDA ? queue.context : queue.queue, nullptr);
            EXPECT_EQ(test::device_unusable(name), "");
        } catch (const Error &error) {
            EXPECT_EQ(error.status(), HATTN_NOT_SUPPORTED);
            EXPECT_NE(test::device_unusable(name), "");
        }
    }
    EXPECT_THROW(device_queue(HATTN_CPU), Error);
}

}  // namespace
