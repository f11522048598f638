/* The header and the library from C11, without C++ anywhere. Prints a sentence and fails if a result is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "hattn/hattn.h"

enum { kKeys = 4, kDim = 3 };

static hattn_tensor tensor(float *data, int64_t rows, int64_t dim) {
    hattn_tensor t = HATTN_TENSOR_INIT;
    t.data = data;
    t.extent[0] = t.extent[1] = 1;
    t.extent[2] = rows;
    t.extent[3] = dim;
    t.stride[0] = t.stride[1] = rows * dim;
    t.stride[2] = dim;
    t.stride[3] = 1;
    return t;
}

static int report(const char *what, hattn_status status, hattn_context *context) {
    fprintf(stderr, "%s: %s: %s\n", what, hattn_status_name(status), hattn_last_error(context));
    return EXIT_FAILURE;
}

int main(void) {
    float q[kDim] = {0.0f, 0.0f, 0.0f}; /* equal scores: the output is the mean of the values */
    float k[kKeys * kDim] = {0.0f}, v[kKeys * kDim], out[kDim] = {0.0f};
    hattn_context_desc options = HATTN_CONTEXT_DESC_INIT;
    hattn_context *context = NULL;
    hattn_attention_desc desc;
    hattn_attention_args args;
    hattn_status status;
    int i;

    for (i = 0; i < kKeys * kDim; ++i) {
        v[i] = (float)i;
    }
    options.threads = 1;
    status = hattn_context_create(&options, &context);
    if (status != HATTN_OK) {
        return report("hattn_context_create", status, NULL);
    }
    hattn_attention_desc_init(&desc);
    desc.batch = desc.query_heads = desc.kv_heads = desc.query_length = 1;
    desc.kv_length = kKeys;
    desc.key_dim = desc.value_dim = kDim;
    hattn_attention_args_init(&args);
    args.q = tensor(q, 1, kDim);
    args.k = tensor(k, kKeys, kDim);
    args.v = tensor(v, kKeys, kDim);
    args.out = tensor(out, 1, kDim);
    status = hattn_attention(context, &desc, &args);
    if (status != HATTN_OK) {
        return report("hattn_attention", status, context);
    }
    hattn_context_destroy(context);
    for (i = 0; i < kDim; ++i) {
        if (out[i] != 4.5f + (float)i) {
            fprintf(stderr, "out[%d] is %g, expected %g\n", i, (double)out[i], 4.5 + i);
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}
