// The interpreter's lock, given up while the library computes.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace hattn_python {

// As nb::gil_scoped_release, but for daemon threads that want the lock back when the interpreter has come to its end.
// Before Python 3.14 these are ended by unwinding their stacks, which is not possible through a destructor and would
// end the process with SIGABRT. Here they wait for the process to end, as later interpreters have them do.
class ReleasedGil {
public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ~ReleasedGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;)
                pause();
        }
    }
    ReleasedGil(const ReleasedGil &) = delete;
    ReleasedGil &operator=(const ReleasedGil &) = delete;

private:
    PyThreadState *state_;
};

}  // namespace hattn_python
