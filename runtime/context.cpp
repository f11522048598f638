#include "context.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "cpu_features.h"
#include "float_environment.h"
#include "kernel_registry.h"
#include "status.h"
#include "structs.h"
#include "worker_pool.h"

namespace hattn {

namespace {

struct ParallelLoop {
    void (*work)(void *closure, int32_t worker);
    void *closure;
    std::atomic<bool> begun{false};
};

// On threads of the application, which may compute as it likes.
void run_as_usual(void *loop, int32_t worker) {
    const UsualArithmetic arithmetic;
    auto *parallel_loop = static_cast<ParallelLoop *>(loop);
    parallel_loop->begun.store(true, std::memory_order_relaxed);
    parallel_loop->work(parallel_loop->closure, worker);
}

// Entries whose kernels cannot be had leave the default, so a pack that is no good is worth a warning.
void load_tuned_kernels(hattn_context &context) {
    for (const std::string &path : context.tuning->packs) {
        try {
            context.packs.load(path);
        } catch (const StatusError &error) {
            context.warning += context.warning.empty() ? "" : "; ";
            context.warning += "tuning database " + context.tuning->path + ": " + error.what();
        }
    }
}

}  // namespace

void Executor::run(int32_t workers, void (*work)(void *closure, int32_t worker), void *closure) const {
    if (parallel_for && workers > 1) {
        ParallelLoop loop{work, closure};
        {
            const CallersArithmetic arithmetic;  // it may do other things of the application's meanwhile
            parallel_for(user, workers, run_as_usual, &loop);
        }
        // One alone does what there is to do.
        require(loop.begun.load(std::memory_order_relaxed), HATTN_INTERNAL_ERROR,
                "parallel_for: returned without a call of task, of ", workers);
    } else {
        run_on_workers(workers, work, closure);
    }
}

ContextMemory::ContextMemory(const hattn_context &context, size_t bytes, size_t alignment)
    : deallocate_(context.deallocate), user_(context.allocator_user) {
    if (bytes == 0) {
        return;
    }
    const size_t size = (bytes + alignment - 1) / alignment * alignment;
    if (context.allocate) {
        const CallersArithmetic arithmetic;
        data_ = context.allocate(user_, size, alignment);
        if (reinterpret_cast<uintptr_t>(data_) % alignment != 0) {
            context.deallocate(user_, data_);
            fail(HATTN_INVALID_ARGUMENT, "allocate: returned ", data_, ", but must return memory aligned to ",
                 alignment, " bytes");
        }
    } else {
        data_ = std::aligned_alloc(alignment, size);
    }
    require(data_, HATTN_OUT_OF_MEMORY, "the allocator returned null for ", size, " bytes");
}

std::unique_ptr<ContextMemory> ContextMemory::in_huge_pages(const hattn_context &context, size_t bytes,
                                                            size_t alignment) {
    constexpr size_t kHugePage = size_t{1} << 21, kFewest = 2;
    const bool huge = !context.allocate && bytes >= kFewest * kHugePage;
    auto memory = std::make_unique<ContextMemory>(context, bytes, huge ? kHugePage : alignment);
#ifdef MADV_HUGEPAGE
    if (huge) {
        // A wish: systems without such pages refuse it.
        static_cast<void>(madvise(memory->data(), bytes, MADV_HUGEPAGE));
    }
#endif
    return memory;
}

ContextMemory::~ContextMemory() {
    if (!data_) {
        return;
    }
    if (deallocate_) {
        const CallersArithmetic arithmetic;
        deallocate_(user_, data_);
    } else {
        std::free(data_);
    }
}

}  // namespace hattn

hattn_status hattn_context_create(const hattn_context_desc *desc, hattn_context **context) {
    using namespace hattn;
    return guarded([&] {
        require(context, HATTN_INVALID_ARGUMENT, "context: is null");
        const hattn_context_desc defaults = HATTN_CONTEXT_DESC_INIT;
        const hattn_context_desc given = desc ? read_struct(desc, "desc") : defaults;
        require(given.threads >= 0 && given.threads <= kMaxThreads, HATTN_INVALID_ARGUMENT, "desc.threads: is ",
                given.threads, ", but must be from 0 (one per core) to ", kMaxThreads);
        require(
            !given.allocate == !given.deallocate, HATTN_INVALID_ARGUMENT,
            "desc.allocate and desc.deallocate: one is null and the other is not, but both must be given or neither");
        auto created = std::make_unique<hattn_context>();
        created->executor = {given.parallel_for, given.parallel_for_user,
                             given.threads > 0 ? given.threads : available_cores()};
        created->allocate = given.allocate;
        created->deallocate = given.deallocate;
        created->allocator_user = given.allocator_user;
        created->tuning = open_tuning_database(given.tuning_database);
        created->warning = created->tuning->warning();
        load_tuned_kernels(*created);
        created->packs.load_list(std::getenv("HATTN_PACKS"));
        created->force = parse_force(std::getenv("HATTN_FORCE"), created->packs);
        created->target = created->force.target ? created->force.target : &best_runnable_target();
        *context = created.release();
    });
}

void hattn_context_destroy(hattn_context *context) {
    delete context;
}

const char *hattn_context_warning(const hattn_context *context) {
    return context ? context->warning.c_str() : "";
}

const char *hattn_version(void) {
#define HATTN_STRING_(x) #x
#define HATTN_STRING(x) HATTN_STRING_(x)
    return HATTN_STRING(HATTN_VERSION_MAJOR) "." HATTN_STRING(HATTN_VERSION_MINOR) "." HATTN_STRING(
        HATTN_VERSION_PATCH);
}
