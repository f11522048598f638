// Tensors in CUDA memory and the caller's contexts and streams, of the driver in stub_cuda: where work goes, what is
// waited for, and what is taken from the heap.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/case_param.h"
#include "support/devices.h"
#include "support/heap_counter.h"
#include "support/run.h"
#include "support/stored_types.h"

namespace {

using namespace hattn;

template<typename Signature>
Signature *driver(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_LAZY);
    return reinterpret_cast<Signature *>(dlsym(library, name));
}

void *new_context(int device) {
    void *context = nullptr, *popped = nullptr;
    driver<int(void **, unsigned, int)>("cuCtxCreate_v2")(&context, 0, device);
    driver<int(void **)>("cuCtxPopCurrent_v2")(&popped);
    return context;
}

void *new_stream(void *context) {
    void *stream = nullptr, *popped = nullptr;
    driver<int(void *)>("cuCtxPushCurrent_v2")(context);
    driver<int(void **, unsigned)>("cuStreamCreate")(&stream, 0);
    driver<int(void **)>("cuCtxPopCurrent_v2")(&popped);
    return stream;
}

cases::Case some_keys(int64_t rows) {
    cases::Case c;
    c.name = "cuda_queue";
    c.query_heads = 4;
    c.kv_heads = 2;
    c.query_length = rows;
    c.kv_length = 700;
    c.key_dim = c.value_dim = 128;
    return c;
}

// An execute whose tensors and workspaces are, as far as the stub is concerned, memory of a GPU.
template<typename Problem>
struct ExecuteOf {
    // cache: where keys and values are, if given, of a context of its own.
    template<typename... OfProblem>
    ExecuteOf(hattn_algorithm algorithm, int32_t device_id, const hattn_kv_cache *cache, const OfProblem &...of_problem)
        : problem(of_problem...) {
        if (cache) {
            hattn_kv_cache_bind(cache, &problem.desc, &problem.args);
        }
        problem.desc.device = HATTN_CUDA;
        problem.desc.device_id = device_id;
        problem.desc.algorithm = algorithm;
        context = test::make_context();
        plan = test::make_plan(context.get(), problem.desc);
        args = problem.args;
        for (hattn_tensor *tensor : {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.scores, &args.bias,
                                     &args.mask, &args.k_scale, &args.v_scale}) {
            tensor->device = HATTN_CUDA;
            tensor->device_id = device_id;
        }
        hattn_plan_workspace_size(plan.get(), &args.workspace_size);
        hattn_plan_device_workspace_size(plan.get(), &args.device_workspace_size);
        host.reset(std::aligned_alloc(256, (args.workspace_size + 255) / 256 * 256));
        device.reset(std::aligned_alloc(256, (args.device_workspace_size + 255) / 256 * 256));
        args.workspace = host.get();
        args.device_workspace = device.get();
    }

    test::Outcome run(void *stream, void *in_context = nullptr) {
        hattn_queue queue = HATTN_QUEUE_INIT;
        queue.queue = stream;
        queue.context = in_context;
        args.queue = &queue;
        const uint64_t before = test::heap_allocations();
        const hattn_status status = hattn_plan_execute(plan.get(), &args);
        const uint64_t after = test::heap_allocations();
        test::Outcome outcome = test::outcome_of(status);
        outcome.allocations = after - before;
        return outcome;
    }

    struct Free {
        void operator()(void *memory) const {
            std::free(memory);
        }
    };
    Problem problem;
    test::ContextPtr context;
    test::PlanPtr plan;
    hattn_attention_args args;
    std::unique_ptr<void, Free> host, device;
};

struct Execute : ExecuteOf<cases::Problem> {
    Execute(const cases::Case &c, hattn_algorithm algorithm, int32_t device_id = 0,
            const hattn_kv_cache *cache = nullptr)
        : ExecuteOf(algorithm, device_id, cache, c) {}
};

class CudaQueue : public testing::Test {
protected:
    static void SetUpTestSuite() {
        setenv("HATTN_STUB_CUDA_DEVICES", "2", 1);
    }
    void SetUp() override {
        const std::vector<std::string> &names = test::device_names();
        if (std::find(names.begin(), names.end(), "cuda") == names.end()) {
            GTEST_SKIP() << "the build has no kernels for cuda";
        }
        ASSERT_EQ(test::device_unusable("cuda"), "");
    }
    void TearDown() override {
        unsetenv("HATTN_STUB_CUDA_LOG");
        unsetenv("HATTN_STUB_CUDA_FAIL");
        std::remove(log_.c_str());
    }
    void start_log() const {
        std::remove(log_.c_str());
        setenv("HATTN_STUB_CUDA_LOG", log_.c_str(), 1);
    }
    std::vector<std::string> log_lines(const std::string &start = "") const {
        std::vector<std::string> lines;
        std::ifstream file(log_);
        for (std::string line; std::getline(file, line);) {
            if (line.starts_with(start)) {
                lines.push_back(line);
            }
        }
        return lines;
    }

    const std::string log_ = testing::TempDir() + "hattn_cuda_queue_" + std::to_string(getpid()) + ".log";
};

std::string in_stream(void *stream) {
    char text[32];
    std::snprintf(text, sizeof(text), "stream=%p", stream);
    return text;
}

TEST_F(CudaQueue, AnExecuteTakesNoMemoryAndWaitsForNothing) {
    for (const auto &[rows, algorithm, launches] :
         {std::tuple(100, HATTN_ALGORITHM_FLASH, 1u), std::tuple(1, HATTN_ALGORITHM_SPLIT_KV, 2u),
          std::tuple(3, HATTN_ALGORITHM_NAIVE, 2u), std::tuple(3, HATTN_ALGORITHM_UNFUSED, 3u)}) {
        Execute execute(some_keys(rows), algorithm);
        void *const stream = new_stream(new_context(0));
        ASSERT_TRUE(execute.run(stream).ok());  // loads kernels
        start_log();
        ASSERT_TRUE(execute.run(stream).ok());
        for (const std::string &line : log_lines()) {
            EXPECT_TRUE(line.starts_with("upload ") || line.starts_with("launch ")) << line;
            EXPECT_NE(line.find(in_stream(stream)), std::string::npos) << line;
        }
        EXPECT_EQ(log_lines("launch").size(), launches);
        unsetenv("HATTN_STUB_CUDA_LOG");
        EXPECT_EQ(execute.run(stream).allocations, 0u);
    }
}

TEST_F(CudaQueue, EveryCaseFitsItsWorkspaces) {
    void *const stream = new_stream(new_context(0));
    for (const test::CaseParam &param : test::case_params(test::device_supports)) {
        for (const hattn_algorithm algorithm : test::kDeviceAlgorithms) {
            Execute execute(*param.spec, algorithm);
            ASSERT_TRUE(execute.run(stream).ok()) << param.spec->name;
            const test::Outcome outcome = execute.run(stream);
            EXPECT_TRUE(outcome.ok()) << outcome.text();
            EXPECT_EQ(outcome.allocations, 0u) << param.spec->name << " " << test::algorithm_name(algorithm);
        }
    }
}

TEST_F(CudaQueue, EveryTypeFitsItsWorkspaces) {
    void *const stream = new_stream(new_context(0));
    for (const test::CaseParam &param : test::case_params(
             [](const cases::Case &c) { return test::device_supports(c) && c.work() <= cases::kSmallWork / 4; })) {
        const uint64_t turn = param.spec->seed();
        const cases::StoredTypes &types = test::kStoredTypes[turn % std::size(test::kStoredTypes)];
        const hattn_algorithm algorithm =
            test::kDeviceAlgorithms[turn / std::size(test::kStoredTypes) % std::size(test::kDeviceAlgorithms)];
        ExecuteOf<cases::TypedProblem> execute(algorithm, 0, nullptr, *param.spec, types);
        ASSERT_TRUE(execute.run(stream).ok()) << param.spec->name << " " << types.name;
        const test::Outcome outcome = execute.run(stream);
        EXPECT_TRUE(outcome.ok()) << outcome.text();
        EXPECT_EQ(outcome.allocations, 0u) << param.spec->name << " " << types.name;
    }
}

TEST_F(CudaQueue, PagesAndRingsFitTheirWorkspaces) {
    constexpr int64_t kRows = 37;
    void *const stream = new_stream(new_context(0));
    for (const auto &[page_size, window] : {std::pair(16, 0), std::pair(0, 40)}) {
        cases::Case c = some_keys(1);
        c.batch = 2;
        c.kv_length = kRows;
        c.window_left = window - 1;
        const test::ContextPtr context = test::make_context();
        hattn_kv_cache_desc desc;
        hattn_kv_cache_desc_init(&desc);
        desc.batch = c.batch;
        desc.kv_heads = c.kv_heads;
        desc.capacity = 5 * kRows;
        desc.key_dim = c.key_dim;
        desc.page_size = page_size;
        desc.window = window;
        hattn_kv_cache *made = nullptr;
        ASSERT_EQ(hattn_kv_cache_create(context.get(), &desc, &made), HATTN_OK);
        const test::CachePtr cache(made);
        const cases::Problem rows(c);
        for (int i = 0; i < (window > 0 ? 8 : 5); ++i) {  // a ring wraps around
            ASSERT_EQ(hattn_kv_append(cache.get(), &rows.args.k, &rows.args.v, nullptr), HATTN_OK);
            for (const hattn_algorithm algorithm : test::kDeviceAlgorithms) {
                Execute execute(c, algorithm, 0, cache.get());
                ASSERT_TRUE(execute.run(stream).ok());
                EXPECT_EQ(execute.run(stream).allocations, 0u) << page_size << " " << window << " " << i;
            }
        }
    }
}

TEST_F(CudaQueue, WithoutADeviceWorkspaceOrAQueueItWaits) {
    Execute execute(some_keys(20), HATTN_ALGORITHM_FLASH);
    void *const stream = new_stream(new_context(0));
    execute.args.device_workspace = nullptr;
    start_log();
    ASSERT_TRUE(execute.run(stream).ok());
    EXPECT_EQ(log_lines().back(), "wait " + in_stream(stream));
    start_log();
    execute.args.queue = nullptr;
    ASSERT_EQ(hattn_plan_execute(execute.plan.get(), &execute.args), HATTN_OK);
    EXPECT_EQ(log_lines().back(), "wait " + in_stream(nullptr));
    ASSERT_EQ(hattn_attention(execute.context.get(), &execute.problem.desc, &execute.args), HATTN_OK);
}

TEST_F(CudaQueue, KernelsAreLoadedOnceForEachContext) {
    Execute execute(some_keys(30), HATTN_ALGORITHM_FLASH);
    void *const one = new_context(0), *const other = new_context(0);
    start_log();
    for (void *context : {one, other, one}) {
        ASSERT_TRUE(execute.run(new_stream(context)).ok());
        ASSERT_TRUE(execute.run(nullptr, context).ok());
    }
    EXPECT_EQ(log_lines("module").size(), 2u);
    EXPECT_EQ(log_lines("launch").size(), 6u);
}

TEST_F(CudaQueue, PtxIsLoadedWhereAFatBinaryIsRefused) {
    Execute execute(some_keys(35), HATTN_ALGORITHM_FLASH);
    start_log();
    ASSERT_TRUE(execute.run(new_stream(new_context(0))).ok());
    const bool fat = log_lines("module fat=1").size() == 1;
    start_log();
    setenv("HATTN_STUB_CUDA_FAIL", "fat", 1);
    ASSERT_TRUE(execute.run(new_stream(new_context(0))).ok());
    EXPECT_EQ(log_lines("module fat=1").size(), fat ? 1u : 0u);
    EXPECT_EQ(log_lines("module fat=0 ptx=1").size(), 1u);
}

TEST_F(CudaQueue, ThreadsUseStreamsOfTheirOwn) {
    constexpr int kThreads = 4, kTimes = 8;
    start_log();
    std::vector<std::string> expected;
    std::vector<std::thread> threads;
    std::array<hattn_status, kThreads> statuses = {};
    for (int t = 0; t < kThreads; ++t) {
        void *const context = new_context(t % 2), *const stream = new_stream(context);
        char where[64];
        std::snprintf(where, sizeof(where), "context=%p stream=%p", context, stream);
        expected.insert(expected.end(), kTimes, where);
        threads.emplace_back([stream, t, status = &statuses[t]] {
            Execute execute(some_keys(40), HATTN_ALGORITHM_FLASH, t % 2);
            for (int i = 0; i < kTimes && *status == HATTN_OK; ++i) {
                *status = execute.run(stream).status;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(statuses, (std::array<hattn_status, kThreads>{}));
    std::vector<std::string> launches;
    for (const std::string &line : log_lines("launch")) {
        launches.push_back(line.substr(line.find("context=")));
    }
    std::sort(launches.begin(), launches.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(launches, expected);
    EXPECT_EQ(log_lines("module").size(), static_cast<size_t>(kThreads));
}

TEST_F(CudaQueue, ErrorsBelongToTheThreadThatMadeThem) {
    Execute execute(some_keys(50), HATTN_ALGORITHM_FLASH);
    void *const stream = new_stream(new_context(0));
    setenv("HATTN_STUB_CUDA_FAIL", "cuLaunchKernel", 1);
    const test::Outcome failed = execute.run(stream);
    unsetenv("HATTN_STUB_CUDA_FAIL");
    EXPECT_EQ(failed.status, HATTN_INTERNAL_ERROR);
    EXPECT_NE(failed.message.find("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED"), std::string::npos) << failed.message;
    test::Outcome other;
    std::thread([&] { other = execute.run(stream); }).join();
    EXPECT_TRUE(other.ok()) << other.text();
    setenv("HATTN_STUB_CUDA_FAIL", "cuStreamSynchronize", 1);
    execute.args.device_workspace = nullptr;
    EXPECT_EQ(execute.run(stream).status, HATTN_INTERNAL_ERROR);
}

TEST_F(CudaQueue, QueuesAndTensorsAreOfThePlansGpu) {
    Execute execute(some_keys(60), HATTN_ALGORITHM_FLASH, 1);
    test::Outcome outcome = execute.run(new_stream(new_context(0)));
    EXPECT_EQ(outcome.status, HATTN_INVALID_ARGUMENT);
    EXPECT_EQ(outcome.message, "queue: its context is of GPU 0, but the plan's device_id is 1");
    EXPECT_TRUE(execute.run(new_stream(new_context(1))).ok());
    execute.args.v.device_id = 0;
    outcome = execute.run(new_stream(new_context(1)));
    EXPECT_EQ(outcome.message, "v: device_id is 0, but the plan's device_id is 1");
    execute.args.v = execute.problem.args.v;
    outcome = execute.run(new_stream(new_context(1)));
    EXPECT_NE(outcome.message.find("v: device is 0 (cpu), but that of q is 2 (cuda)"), std::string::npos);
    execute.problem.desc.device_id = 2;
    hattn_plan *plan = nullptr;
    EXPECT_EQ(hattn_plan_create(execute.context.get(), &execute.problem.desc, &plan), HATTN_NOT_SUPPORTED);
    EXPECT_NE(std::string(hattn_last_error(nullptr)).find("GPU 2 is one of 2"), std::string::npos);
}

TEST_F(CudaQueue, TheDefaultStreamIsOfTheCurrentContextElseOfThePrimaryOne) {
    Execute execute(some_keys(70), HATTN_ALGORITHM_FLASH);
    void *const context = new_context(0);
    start_log();
    driver<int(void *)>("cuCtxPushCurrent_v2")(context);
    ASSERT_TRUE(execute.run(nullptr).ok());
    void *popped = nullptr, *primary = nullptr;
    driver<int(void **)>("cuCtxPopCurrent_v2")(&popped);
    EXPECT_EQ(popped, context) << "the caller's stack of contexts has changed";
    ASSERT_TRUE(execute.run(nullptr).ok());
    driver<int(void **, int)>("cuDevicePrimaryCtxRetain")(&primary, 0);
    const std::vector<std::string> launches = log_lines("launch");
    ASSERT_EQ(launches.size(), 2u);
    for (const auto &[line, of] : {std::pair(launches[0], context), std::pair(launches[1], primary)}) {
        char text[32];
        std::snprintf(text, sizeof(text), "context=%p ", of);
        EXPECT_NE(line.find(text), std::string::npos) << line;
    }
}

}  // namespace
