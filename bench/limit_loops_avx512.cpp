// AVX-512F.
#include "limit_loops.h"

namespace hattn::bench {

const LimitLoops &avx512_loops() {
    return kLoops<64>;
}

}  // namespace hattn::bench
