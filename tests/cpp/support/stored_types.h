// Combinations of storage types that cases are run in.
#pragma once

#include "typed_problem.h"

namespace hattn::test {

using cases::ScaleKind;

// The first five have every type but float32 in every place that it may have, and every kind of scale.
inline constexpr cases::StoredTypes kStoredTypes[] = {
    {"float16", HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16, HATTN_FLOAT16},
    {"bfloat16", HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16, HATTN_BFLOAT16},
    {"int8_of_channels", HATTN_BFLOAT16, HATTN_INT8, HATTN_INT8, HATTN_BFLOAT16, ScaleKind::kChannel, ScaleKind::kHead},
    {"int4_of_keys", HATTN_FLOAT16, HATTN_INT4, HATTN_INT4, HATTN_FLOAT16, ScaleKind::kKey, ScaleKind::kKey},
    {"int4_and_int8", HATTN_FLOAT32, HATTN_INT4, HATTN_INT8, HATTN_BFLOAT16, ScaleKind::kHead, ScaleKind::kTensor},
    {"int8_of_keys", HATTN_FLOAT32, HATTN_INT8, HATTN_INT8, HATTN_FLOAT32, ScaleKind::kKey, ScaleKind::kKey},
    {"int8_and_int4", HATTN_FLOAT32, HATTN_INT8, HATTN_INT4, HATTN_FLOAT32, ScaleKind::kTensor, ScaleKind::kChannel},
    {"bfloat16_and_float16", HATTN_FLOAT32, HATTN_BFLOAT16, HATTN_FLOAT16, HATTN_FLOAT32},
    {"float32_and_int8", HATTN_BFLOAT16, HATTN_FLOAT32, HATTN_INT8, HATTN_FLOAT32, ScaleKind::kTensor, ScaleKind::kKey},
    {"queries_alone", HATTN_FLOAT16, HATTN_FLOAT32, HATTN_FLOAT32, HATTN_BFLOAT16},
};

}  // namespace hattn::test
