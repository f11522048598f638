// What a context holds, and running work on its threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "force.h"
#include "hattn/hattn.h"
#include "tuning_database.h"

namespace hattn {

// Copied into plans, so that a plan outlives its context.
struct Executor {
    hattn_parallel_for parallel_for = nullptr;  // null: the library's threads
    void *user = nullptr;
    int32_t threads = 1;

    // Calls work(closure, w) for every w in [0, workers).
    void run(int32_t workers, void (*work)(void *closure, int32_t worker), void *closure) const;
};

}  // namespace hattn

struct hattn_context {
    hattn::Executor executor;
    void *(*allocate)(void *user, size_t bytes, size_t alignment) = nullptr;
    void (*deallocate)(void *user, void *memory) = nullptr;
    void *allocator_user = nullptr;
    std::shared_ptr<const hattn::TuningDatabase> tuning;
    std::string warning;
    hattn::KernelPacks packs;
    hattn::Force force;
    const hattn::TargetInfo *target = nullptr;
};

namespace hattn {

// Aligned memory from the context's allocator, freed on destruction.
class ContextMemory {
public:
    ContextMemory(const hattn_context &context, size_t bytes, size_t alignment);
    // For large arrays of which much is used soon: of the system's heap pages of 2 MiB, where the system gives them,
    // see docs/decisions/0077. Of a caller's allocator as above: its memory is its business.
    static std::unique_ptr<ContextMemory> in_huge_pages(const hattn_context &context, size_t bytes, size_t alignment);
    ~ContextMemory();
    ContextMemory(const ContextMemory &) = delete;
    ContextMemory &operator=(const ContextMemory &) = delete;
    void *data() const {
        return data_;
    }

private:
    // By value: the context may be gone by then.
    void (*deallocate_)(void *user, void *memory);
    void *user_;
    void *data_ = nullptr;
};

inline constexpr int32_t kMaxThreads = 4096;

}  // namespace hattn
