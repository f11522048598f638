/* An application in plain C: one small causal attention through an installed hattn, checked against loops. */
#include <hattn/hattn.h>

#include <math.h>
#include <stdio.h>

enum { HQ = 4, HKV = 2, SQ = 3, SK = 5, DK = 6, DV = 7 }; /* batch is 1; odd sizes, two query heads per kv head */

static float q[HQ][SQ][DK], k[HKV][SK][DK], v[HKV][SK][DV], out[HQ][SQ][DV], lse[HQ][SQ];

/* Repeatable values in [-1, 1). */
static void fill(float *data, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* A view of a contiguous [1, heads, rows, dim] array. */
static hattn_tensor contiguous(float *data, int64_t heads, int64_t rows, int64_t dim) {
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    const int64_t extent[4] = {1, heads, rows, dim};
    const int64_t stride[4] = {heads * rows * dim, rows * dim, dim, 1};
    tensor.data = data;
    for (int i = 0; i < 4; i++) {
        tensor.extent[i] = extent[i];
        tensor.stride[i] = stride[i];
    }
    return tensor;
}

/* A NaN is the largest error, which fmax() would leave out. */
static double larger(double worst, double error) {
    return error <= worst ? worst : error;
}

/* The largest difference of out and lse from a direct evaluation of the definition, for one row. */
static double row_error(int head, int row) {
    const int kv = head / (HQ / HKV), visible = row + SK - SQ + 1;
    double weights[SK], sum = 0, worst;
    for (int j = 0; j < visible; j++) {
        double score = 0;
        for (int d = 0; d < DK; d++) {
            score += (double)q[head][row][d] * k[kv][j][d];
        }
        weights[j] = exp(score / sqrt(DK));
        sum += weights[j];
    }
    worst = fabs(log(sum) - lse[head][row]);
    for (int d = 0; d < DV; d++) {
        double value = 0;
        for (int j = 0; j < visible; j++) {
            value += weights[j] / sum * v[kv][j][d];
        }
        worst = larger(worst, fabs(value - out[head][row][d]));
    }
    return worst;
}

int main(void) {
    hattn_context *context = NULL;
    hattn_attention_desc desc;
    hattn_attention_args args;
    hattn_status status;
    double worst = 0;

    fill(&q[0][0][0], HQ * SQ * DK, 1);
    fill(&k[0][0][0], HKV * SK * DK, 2);
    fill(&v[0][0][0], HKV * SK * DV, 3);

    hattn_attention_desc_init(&desc);
    desc.batch = 1;
    desc.query_heads = HQ;
    desc.kv_heads = HKV;
    desc.query_length = SQ;
    desc.kv_length = SK;
    desc.key_dim = DK;
    desc.value_dim = DV;
    desc.causal = 1;
    hattn_attention_args_init(&args);
    args.q = contiguous(&q[0][0][0], HQ, SQ, DK);
    args.k = contiguous(&k[0][0][0], HKV, SK, DK);
    args.v = contiguous(&v[0][0][0], HKV, SK, DV);
    args.out = contiguous(&out[0][0][0], HQ, SQ, DV);
    args.lse = contiguous(&lse[0][0], HQ, SQ, 1);

    status = hattn_context_create(NULL, &context);
    if (status == HATTN_OK) {
        status = hattn_attention(context, &desc, &args);
    }
    if (status != HATTN_OK) {
        fprintf(stderr, "%s: %s\n", hattn_status_name(status), hattn_last_error(context));
        hattn_context_destroy(context);
        return 1;
    }
    hattn_context_destroy(context);

    for (int head = 0; head < HQ; head++) {
        for (int row = 0; row < SQ; row++) {
            worst = larger(worst, row_error(head, row));
        }
    }
    printf("hattn %s from C: largest error %.2g\n", hattn_version(), worst);
    return worst < 1e-5 ? 0 : 1;
}
