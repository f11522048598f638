// What a thread of the interpreter keeps between calls: a context, the plans made last and a workspace.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "hattn/hattn.h"

namespace hattn_python {

struct ContextDeleter {
    void operator()(hattn_context *context) const {
        hattn_context_destroy(context);
    }
};
struct PlanDeleter {
    void operator()(hattn_plan *plan) const {
        hattn_plan_destroy(plan);
    }
};
struct FreeDeleter {
    void operator()(void *memory) const {
        std::free(memory);
    }
};
using ContextPointer = std::unique_ptr<hattn_context, ContextDeleter>;
using PlanPointer = std::shared_ptr<const hattn_plan>;

// Turns a status other than HATTN_OK into the Python exception that goes with it, with the library's sentence for the
// calling thread. The GIL must be held.
void check(hattn_status status, const hattn_context *context);

// The same of an attention, whose sizes are those of arrays in Python, or of a cache; batch: what the plan's is there.
void check_call(hattn_status status, const hattn_context *context, bool of_cache = false,
                const char *batch = "the batch of q");

// A context with default settings, but for PyTorch's threads where there are any. Throws as check().
ContextPointer make_context();

// The text a JSON query of the C interface gives: called once for the size and once for the text.
std::string query_text(const hattn_context *context,
                       const std::function<hattn_status(char *buffer, size_t capacity, size_t *size)> &query);

// One per thread, since a context is not for concurrent use. Who uses a session or a plan holds it: whatever runs code
// of Python's, which finalisers and arrays' methods may be, may call the library and have others take their place.
class Session {
public:
    // The calling thread's session. Starts anew if a HATTN_ variable of the environment has changed, or PyTorch has
    // been imported, or there has been a fork() since.
    static std::shared_ptr<Session> current();

    hattn_context *context() const {
        return context_.get();
    }

    // A plan for desc, from the ones made last if possible. It goes before the session. Throws as check_call().
    PlanPointer plan(const hattn_attention_desc &desc, bool of_cache = false);

    // Executes with the GIL released and a workspace of the session's; args' workspace is set here. Runs no code of
    // Python's: check() is the caller's.
    hattn_status execute(const hattn_plan *plan, hattn_attention_args args);

private:
    struct Entry {
        hattn_attention_desc desc;
        PlanPointer plan;
    };

    Session();
    void *workspace(size_t bytes);

    std::string environment_;
    ContextPointer context_;
    std::list<Entry> plans_;  // the one used last comes first; destroyed before the context
    std::unique_ptr<void, FreeDeleter> workspace_;
    size_t workspace_size_ = 0;
};

}  // namespace hattn_python
