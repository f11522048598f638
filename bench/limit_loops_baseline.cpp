// What every machine of the architecture can run (on x86-64: SSE2, a multiplication and an addition).
#include "limit_loops.h"

namespace hattn::bench {

const LimitLoops &baseline_loops() {
    return kLoops<16>;
}

}  // namespace hattn::bench
