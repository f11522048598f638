// The optional score output.
#pragma once

#include <cstdint>

#include "plan.h"

namespace hattn {

struct LseView {
    float *data = nullptr;  // null: nobody wants it
    int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

    float *at(int64_t b, int64_t h, int64_t i) const {
        return data + b * batch_stride + h * head_stride + i * row_stride;
    }
};

// Writes every element of args.scores. lse is read for probabilities; workers: the workers' part of the workspace.
void write_scores(const hattn_plan &plan, const hattn_attention_args &args, const LseView &lse, char *workers);

}  // namespace hattn
