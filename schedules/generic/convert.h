// Conversions, row by row with elements in the lanes. They are bound by the memory they read and write, on any target.
#pragma once

#include "generators/convert.h"
#include "hattn/hattn.h"

namespace hattn::schedules::generic {

void schedule_widen(generators::Widen &stages, int lanes);
void schedule_narrow(generators::Narrow &stages, int lanes);
void schedule_block_scales(generators::BlockScales &stages, int lanes);
void schedule_quantize(generators::Quantize &stages, int lanes);

}  // namespace hattn::schedules::generic
