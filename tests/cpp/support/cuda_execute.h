// Executes in streams and contexts of the application's, with the CUDA driver of stub_cuda, and what that was asked
// for.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "devices.h"
#include "heap_counter.h"
#include "run.h"
#include "typed_problem.h"

namespace hattn::test {

template<typename Signature>
Signature *driver(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_LAZY);
    return reinterpret_cast<Signature *>(dlsym(library, name));
}

inline void *new_context(int device) {
    void *context = nullptr, *popped = nullptr;
    driver<int(void **, unsigned, int)>("cuCtxCreate_v2")(&context, 0, device);
    driver<int(void **)>("cuCtxPopCurrent_v2")(&popped);
    return context;
}

inline void *new_stream(void *context) {
    void *stream = nullptr, *popped = nullptr;
    driver<int(void *)>("cuCtxPushCurrent_v2")(context);
    driver<int(void **, unsigned)>("cuStreamCreate")(&stream, 0);
    driver<int(void **)>("cuCtxPopCurrent_v2")(&popped);
    return stream;
}

inline cases::Case some_keys(int64_t rows) {
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
        context = make_context();
        plan = make_plan(context.get(), problem.desc);
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

    Outcome run(void *stream, void *in_context = nullptr) {
        hattn_queue queue = HATTN_QUEUE_INIT;
        queue.queue = stream;
        queue.context = in_context;
        args.queue = &queue;
        const uint64_t before = heap_allocations();
        const hattn_status status = hattn_plan_execute(plan.get(), &args);
        const uint64_t after = heap_allocations();
        Outcome outcome = outcome_of(status);
        outcome.allocations = after - before;
        return outcome;
    }

    struct Free {
        void operator()(void *memory) const {
            std::free(memory);
        }
    };
    Problem problem;
    ContextPtr context;
    PlanPtr plan;
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
        if (!has_cuda_kernels()) {
            GTEST_SKIP() << "the build has no kernels for cuda";
        }
        ASSERT_EQ(device_unusable("cuda"), "");
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

inline std::string in_stream(void *stream) {
    char text[32];
    std::snprintf(text, sizeof(text), "stream=%p", stream);
    return text;
}

}  // namespace hattn::test
