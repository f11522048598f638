/* Plan once, execute many times: causal attention of one layer over sequences of different lengths, from C.
 *
 *     cmake -S examples -B build/examples -Dhattn_ROOT=PREFIX && cmake --build build/examples
 *     build/examples/hattn-example-attention
 */
#include <hattn/hattn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { QUERY_HEADS = 8, KV_HEADS = 2, MAX_LENGTH = 384, HEAD_DIM = 64 };

/* Everything main() owns, so that it can be released in one place. */
typedef struct Session {
    hattn_context *context;
    hattn_plan *plan;
    float *q, *k, *v, *out; /* [1, heads, MAX_LENGTH, HEAD_DIM] */
    void *workspace;
    size_t workspace_size;
} Session;

static void close_session(Session *session) {
    free(session->workspace);
    free(session->out);
    free(session->v);
    free(session->k);
    free(session->q);
    hattn_plan_destroy(session->plan);
    hattn_context_destroy(session->context);
}

/* An array of `count` repeatable values in [-1, 1), or null. */
static float *make_values(size_t count, unsigned seed) {
    float *values = malloc(count * sizeof(float));
    for (size_t i = 0; values != NULL && i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return values;
}

/* The first `length` rows of every head of a [1, heads, MAX_LENGTH, HEAD_DIM] array. */
static hattn_tensor leading_rows(float *data, int64_t heads, int64_t length) {
    hattn_tensor tensor = HATTN_TENSOR_INIT;
    const int64_t extent[4] = {1, heads, length, HEAD_DIM};
    const int64_t stride[4] = {heads * MAX_LENGTH * HEAD_DIM, MAX_LENGTH * HEAD_DIM, HEAD_DIM, 1};
    tensor.data = data;
    for (int i = 0; i < 4; i++) {
        tensor.extent[i] = extent[i];
        tensor.stride[i] = stride[i];
    }
    return tensor;
}

/* The plan's capacities and options; lengths are given to each execute. */
static hattn_status make_plan(Session *session) {
    hattn_attention_desc desc;
    hattn_status status = hattn_context_create(NULL, &session->context);
    if (status != HATTN_OK) {
        return status;
    }
    hattn_attention_desc_init(&desc);
    desc.batch = 1;
    desc.query_heads = QUERY_HEADS;
    desc.kv_heads = KV_HEADS;
    desc.query_length = MAX_LENGTH;
    desc.kv_length = MAX_LENGTH;
    desc.key_dim = HEAD_DIM;
    desc.value_dim = HEAD_DIM;
    desc.causal = 1;
    status = hattn_plan_create(session->context, &desc, &session->plan);
    return status == HATTN_OK ? hattn_plan_workspace_size(session->plan, &session->workspace_size) : status;
}

/* Returns 0 if memory ran out. */
static int make_arrays(Session *session) {
    const size_t queries = (size_t)QUERY_HEADS * MAX_LENGTH * HEAD_DIM, keys = (size_t)KV_HEADS * MAX_LENGTH * HEAD_DIM;
    session->q = make_values(queries, 1);
    session->k = make_values(keys, 2);
    session->v = make_values(keys, 3);
    session->out = make_values(queries, 4);
    /* aligned_alloc wants a positive multiple of the alignment. */
    session->workspace = aligned_alloc(64, (session->workspace_size / 64 + 1) * 64);
    return session->q && session->k && session->v && session->out && session->workspace;
}

static hattn_status attend(const Session *session, int64_t length) {
    hattn_attention_args args;
    hattn_attention_args_init(&args);
    args.q = leading_rows(session->q, QUERY_HEADS, length);
    args.k = leading_rows(session->k, KV_HEADS, length);
    args.v = leading_rows(session->v, KV_HEADS, length);
    args.out = leading_rows(session->out, QUERY_HEADS, length);
    args.workspace = session->workspace;
    args.workspace_size = session->workspace_size;
    return hattn_plan_execute(session->plan, &args);
}

/* The first token sees itself alone: its output is its value, in each head that of its kv head. */
static int first_token_is_right(const Session *session) {
    for (int head = 0; head < QUERY_HEADS; head++) {
        const size_t row = (size_t)MAX_LENGTH * HEAD_DIM, of_query = head * row,
                     of_value = head / (QUERY_HEADS / KV_HEADS) * row;
        for (size_t d = 0; d < HEAD_DIM; d++) {
            if (!(fabsf(session->out[of_query + d] - session->v[of_value + d]) < 1e-6f)) {
                return 0;
            }
        }
    }
    return 1;
}

int main(void) {
    static const int64_t lengths[] = {1, 100, MAX_LENGTH};
    Session session = {0};
    hattn_status status = make_plan(&session);
    if (status == HATTN_OK && !make_arrays(&session)) {
        status = HATTN_OUT_OF_MEMORY;
    }
    for (size_t i = 0; status == HATTN_OK && i < sizeof lengths / sizeof lengths[0]; i++) {
        status = attend(&session, lengths[i]);
        if (status == HATTN_OK) {
            const float *row = session.out + (lengths[i] - 1) * HEAD_DIM;
            printf("%3lld tokens: head 0 of the last one starts %9.6f %9.6f %9.6f\n", (long long)lengths[i], row[0],
                   row[1], row[2]);
        }
    }
    if (status != HATTN_OK) {
        fprintf(stderr, "%s: %s\n", hattn_status_name(status), hattn_last_error(session.context));
    }
    const int right = status == HATTN_OK && first_token_is_right(&session);
    if (status == HATTN_OK && !right) {
        fprintf(stderr, "the first token's output is not its value\n");
    }
    close_session(&session);
    return right ? 0 : 1;
}
