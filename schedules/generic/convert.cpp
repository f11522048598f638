#include "convert.h"

namespace hattn::schedules::generic {

using namespace Halide;
using generators::BlockScales;
using generators::Narrow;
using generators::Quantize;
using generators::Widen;

void schedule_widen(Widen &s, int lanes) {
    s.output.vectorize(s.d, lanes, TailStrategy::GuardWithIf).specialize(s.type == HATTN_FLOAT16);
}

void schedule_narrow(Narrow &s, int lanes) {
    s.output.vectorize(s.d, lanes, TailStrategy::GuardWithIf).specialize(s.type == HATTN_FLOAT16);
}

void schedule_block_scales(BlockScales &s, int lanes) {
    s.largest.compute_at(s.output, s.block);
    s.largest.update().atomic().vectorize(s.in_block, lanes);
}

void schedule_quantize(Quantize &s, int lanes) {
    s.integers.compute_at(s.output, s.i).vectorize(s.d, lanes, TailStrategy::RoundUp);
    s.output.vectorize(s.byte, lanes, TailStrategy::GuardWithIf).specialize(s.type == HATTN_INT8);
}

}  // namespace hattn::schedules::generic
