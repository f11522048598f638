// AVX2 with FMA.
#include "limit_loops.h"

namespace hattn::bench {

const LimitLoops &avx2_loops() {
    return kLoops<32>;
}

}  // namespace hattn::bench
