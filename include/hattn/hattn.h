/* hattn: attention kernels compiled from Halide pipelines. C interface.
 *
 * Semantics are in docs/semantics.md. Three rules:
 *   - a function that can fail returns a hattn_status; hattn_last_error() gives the sentence that belongs to it;
 *   - on a status other than HATTN_OK nothing the caller owns has been written, but the *size that hattn_info(),
 *     hattn_plan_explain() and hattn_plan_explain_sequence() want;
 *   - none aborts, prints or throws, unless the heap has nothing left while a JSON text is read or written: of
 * hattn_info() and those that explain, of kernel packs and tunings. Functions that destroy take null.
 *
 * Every public structure starts with `struct_size`; set it to sizeof(the structure), most easily through the
 * HATTN_*_INIT initialisers and hattn_*_init() functions. Any other size is refused: structures change together with
 * the library's SOVERSION alone, which is that of the minor version.
 */
#ifndef HATTN_HATTN_H
#define HATTN_HATTN_H

#include <stddef.h>
#include <stdint.h>

#define HATTN_VERSION_MAJOR 0
#define HATTN_VERSION_MINOR 1
#define HATTN_VERSION_PATCH 0

#if defined(_WIN32)
#define HATTN_API
#else
#define HATTN_API __attribute__((visibility("default")))
#endif

/* A fixed type, so that C++ may look at values that are no enumerators. */
#ifdef __cplusplus
#define HATTN_ENUM_BASE : int
extern "C" {
#else
#define HATTN_ENUM_BASE
#endif

typedef enum hattn_status HATTN_ENUM_BASE {
    HATTN_OK = 0,
    HATTN_INVALID_ARGUMENT = 1,    /* a value, shape, stride or pointer is wrong; the message names it */
    HATTN_NOT_SUPPORTED = 2,       /* legal, but not in this version or this build */
    HATTN_OUT_OF_MEMORY = 3,       /* the allocator, or a device, has no memory left */
    HATTN_WORKSPACE_TOO_SMALL = 4, /* see hattn_plan_workspace_size() */
    HATTN_CAPACITY_EXCEEDED = 5,   /* more rows, keys or sequences than the plan or cache was made for */
    HATTN_OVERFLOW = 6,            /* a product of extents or strides does not fit */
    HATTN_INTERNAL_ERROR = 7       /* a bug in hattn, or an error of a device's driver */
} hattn_status;

/* Queries and outputs are float32, float16 or bfloat16, keys and values besides int8 or int4, which come with scales.
 * Everything is accumulated in float32, and computed in it but for the exceptions of docs/semantics.md. */
typedef enum hattn_dtype HATTN_ENUM_BASE {
    HATTN_FLOAT32 = 1,
    HATTN_FLOAT16 = 2,  /* IEEE 754 binary16 */
    HATTN_BFLOAT16 = 3, /* the upper half of a float32 */
    HATTN_INT8 = 4,     /* two's complement */
    HATTN_INT4 = 5,     /* likewise, two to a byte along the last dimension, the first in the low half */
    HATTN_BOOL = 6, /* one byte, zero is false */
    HATTN_INT32 = 7
} hattn_dtype;

typedef enum hattn_device HATTN_ENUM_BASE { HATTN_CPU = 0, HATTN_OPENCL = 1, HATTN_CUDA = 2 } hattn_device;

typedef enum hattn_algorithm HATTN_ENUM_BASE {
    HATTN_ALGORITHM_AUTO = 0,
    HATTN_ALGORITHM_NAIVE = 1,    /* scores materialised */
    HATTN_ALGORITHM_FLASH = 2,    /* online softmax over key chunks inside a query tile */
    HATTN_ALGORITHM_SPLIT_KV = 3, /* key range in splits, partial states, merge */
    HATTN_ALGORITHM_UNFUSED = 4   /* scores and row statistics first, values second */
} hattn_algorithm;

typedef enum hattn_scores HATTN_ENUM_BASE {
    HATTN_SCORES_NONE = 0,
    HATTN_SCORES_RAW = 1,          /* scale * q.k */
    HATTN_SCORES_CAPPED = 2,       /* after softcap */
    HATTN_SCORES_MASKED = 3,       /* after bias, ALiBi and every mask: -inf where masked */
    HATTN_SCORES_PROBABILITIES = 4 /* exp(s - lse) */
} hattn_scores;

/* Threads, allocator, tunings. Plans and caches use it, so it is destroyed after them. One thread at a time. */
typedef struct hattn_context hattn_context;
/* Immutable after creation. Several threads at once may execute it, whatever others do with the context meanwhile. */
typedef struct hattn_plan hattn_plan;
/* Keys and values of a batch of sequences. One thread at a time, which counts as one that uses the context. */
typedef struct hattn_kv_cache hattn_kv_cache;

/* A strided view of up to four dimensions, in logical order [batch, heads, sequence, head dimension] unless a member
 * says otherwise. Strides count elements (of int4 they are even, so that rows start at bytes), may be zero on inputs that broadcast, and are 1 in the last dimension of
 * q, k, v and out, and negative ones are allowed. Kernels take strides of up to 2^16 elements between keys, 2^23 between rows and
 * 2^27 between heads; larger ones are HATTN_NOT_SUPPORTED. `data` null means "not given".
 *
 * Memory of a device: `data` is a CUdeviceptr of GPU `device_id`, or a cl_mem that is not a sub-buffer. See hattn_queue. */
typedef struct hattn_tensor {
    size_t struct_size;
    void *data;
    hattn_dtype dtype;
    hattn_device device;
    int32_t device_id;
    int64_t extent[4];
    int64_t stride[4];
    uint64_t byte_offset; /* of OpenCL alone: bytes from the start of the cl_mem to element [0, 0, 0, 0]; else 0 */
} hattn_tensor;
#define HATTN_TENSOR_INIT \
    { sizeof(hattn_tensor), NULL, HATTN_FLOAT32, HATTN_CPU, 0, {0, 0, 0, 0}, {0, 0, 0, 0}, 0 }

/* ---- context ------------------------------------------------------------------------------------------------ */

/* Calls task(closure, i) for every i in [0, count), in any order, on any threads, and returns after the last. May not
 * throw. Where plans are executed by several threads at once, so is this, with the same user. */
typedef void (*hattn_parallel_for)(void *user, int32_t count, void (*task)(void *closure, int32_t index),
                                   void *closure);

typedef struct hattn_context_desc {
    size_t struct_size;
    int32_t threads;                 /* workers of one execute; 0: one per core that the process, by its first thread, may use and has time on */
    hattn_parallel_for parallel_for; /* null: threads of the library, which all contexts share */
    void *parallel_for_user;         /* lives as long as the context, as allocator_user does */
    /* Both null (the system's heap) or both set. allocate returns memory aligned to `alignment` or null. */
    void *(*allocate)(void *user, size_t bytes, size_t alignment);
    void (*deallocate)(void *user, void *memory);
    void *allocator_user;
    /* Where `hattn tune` left its measurements of this machine, read by hattn_context_create() alone: a path, "none"
     * for no file, "rule" for not even the tunings that come with the library; null: $HATTN_TUNING, which may be the
     * same, then hattn/tuning-MACHINE.json in the user's cache directory, which machines may share. See
     * hattn_context_warning() for a file that is damaged or of another machine. */
    const char *tuning_database;
} hattn_context_desc;
#define HATTN_CONTEXT_DESC_INIT \
    { sizeof(hattn_context_desc), 0, NULL, NULL, NULL, NULL, NULL, NULL }

/* desc may be null (all defaults). HATTN_PACKS (see hattn_context_load_kernels()) and HATTN_FORCE are read here; an unknown
 * word in the latter is HATTN_INVALID_ARGUMENT. */
HATTN_API hattn_status hattn_context_create(const hattn_context_desc *desc, hattn_context **context);
HATTN_API void hattn_context_destroy(hattn_context *context);
/* What is worth telling a user about the context, a sentence: a tuning database that is ignored. "" if there is nothing.
 * Lives as long as the context. */
HATTN_API const char *hattn_context_warning(const hattn_context *context);

/* Adds the kernels of a pack, as hattn-kernelgen writes them, to those that HATTN_FORCE and tunings may name; what plans
 * choose by default stays. path: a pack, which must be for this library and this CPU, or a folder, of whose files *.so those
 * that are not are left out, each with a sentence in the "warnings" of hattn_info(). The paths in HATTN_PACKS, with ':'
 * between them, are loaded when a context is created, before HATTN_FORCE is read. A pack stays loaded as long as the
 * context, or a plan made after it, needs it. Loading one runs no code of it, executing does: take them from where the
 * library itself could come from. */
HATTN_API hattn_status hattn_context_load_kernels(hattn_context *context, const char *path);

/* The sentence for the last failure on the calling thread, whatever its context; "" if there was none. context may be null. Valid
 * until the thread's next hattn call. */
HATTN_API const char *hattn_last_error(const hattn_context *context);
HATTN_API const char *hattn_status_name(hattn_status status); /* "HATTN_OK", ... ; "unknown" for other values */
HATTN_API const char *hattn_version(void);

/* JSON text: version, targets compiled and runnable, devices compiled and usable, kernels, tuning database. Writes at most `capacity` bytes with the
 * final zero, and always the number of bytes needed to *size. HATTN_CAPACITY_EXCEEDED if capacity is too small
 * (buffer may be null with capacity 0). */
HATTN_API hattn_status hattn_info(hattn_context *context, char *buffer, size_t capacity, size_t *size);

/* ---- attention ---------------------------------------------------------------------------------------------- */

/* What a plan is made for: capacities and options. Lengths, offsets and data are given to each execute. */
typedef struct hattn_attention_desc {
    size_t struct_size;
    hattn_dtype dtype;    /* of q, and of k, v and out unless said below */
    hattn_device device;  /* that computes, see hattn_queue */
    int64_t batch;        /* B >= 0 */
    int64_t query_heads;  /* Hq > 0, a multiple of kv_heads */
    int64_t kv_heads;     /* Hkv > 0 */
    int64_t query_length; /* Sq >= 0: capacity; q_lengths may shorten each sequence. Packed: of the longest sequence */
    int64_t kv_length;    /* Sk >= 0: capacity; kv_lengths may shorten each sequence. Packed: of the longest sequence */
    int64_t key_dim;      /* Dk > 0 */
    int64_t value_dim;    /* Dv > 0 */
    float scale;          /* NaN: 1/sqrt(Dk) */
    int32_t causal;       /* 0 or 1 */
    int64_t window_left;  /* keys visible before the query's own position, -1: all */
    int64_t window_right; /* and after it */
    float softcap;        /* 0: off; > 0: s = softcap * tanh(s / softcap) */
    int32_t has_bias, has_mask, has_alibi, has_sinks; /* 0 or 1: what every execute will be given */
    hattn_scores scores;  /* the extra score output, if any */
    hattn_algorithm algorithm;
    int32_t threads;      /* 0: the context's */
    int64_t packed_queries; /* 0: q is [B, Hq, Sq, Dk]; > 0: queries are packed (see cu_seqlens_q), at most so many rows */
    int64_t page_size;    /* 0: k and v hold one sequence after the other; 16, 32, 64 or 128: they are pages of so many keys */
    int32_t ring;         /* 0 or 1: k and v keep the last keys of each sequence, see hattn_attention_args */
    hattn_dtype k_dtype, v_dtype; /* 0: dtype; any storage type, independent of each other */
    hattn_dtype out_dtype;        /* 0: dtype; float32, float16 or bfloat16 */
    int32_t device_id;            /* which of the GPUs that the CUDA driver counts; 0 on other devices */
} hattn_attention_desc;

/* Fills desc with defaults: float32, CPU, scale NaN, windows -1, everything else 0. */
HATTN_API void hattn_attention_desc_init(hattn_attention_desc *desc);

/* Where an execute on a device puts its work.
 *
 * Tensors of an execute (q, k, v, out and, where given, lse, scores, bias, mask and scales) are all in host memory, from where they are copied and
 * to where results are, or all in memory of the plan's device; k and v, with their scales, may be there alone; another mixture is HATTN_INVALID_ARGUMENT, another device HATTN_NOT_SUPPORTED. Vectors (slopes, sinks,
 * lengths, offsets, block tables) are in host memory, and read before the execute returns.
 *
 * With tensors on the device, a queue and a device_workspace, an execute takes no memory on the device and waits for nothing but the loading of kernels
 * (through OpenCL each launch takes a little heap memory): results are there once the queue is done, and until then tensors and both workspaces have to stay. In any other case it returns when results are
 * there. Without a queue, work goes to one of the library's own, which all its executes without a queue share: in the primary context of the
 * GPU, and of OpenCL in a context that $HL_OCL_PLATFORM_NAME and $HL_OCL_DEVICE_TYPE choose; cl_mems need one of their own context.
 * Kernels are loaded once for each context, which must not be destroyed while it is used. */
typedef struct hattn_queue {
    size_t struct_size;
    void *context; /* CUcontext; null: that of the stream, else the calling thread's if of the plan's GPU, else the primary one. Of OpenCL null */
    void *queue;   /* CUstream, null being the default one; cl_command_queue, in order, of a context of one device */
} hattn_queue;
#define HATTN_QUEUE_INIT \
    { sizeof(hattn_queue), NULL, NULL }

/* The tensors of one execute. Where key j of sequence b lies:
 *   - by default in row j of k[b];
 *   - with desc.page_size: in row j % page_size of page block_table[b * block_table_stride + j / page_size]. k and v then are
 *     [pages, Hkv, page_size, D] tensors with any strides, kv_lengths is required and within desc.kv_length, and pages may
 *     be shared by sequences (paged attention: Kwon et al., PagedAttention, 2023);
 *   - with desc.ring: in row j % R of k[b], where R = extent[2], a multiple of 16, is within desc.kv_length. kv_lengths is
 *     required and may exceed R: the last R keys are there, and the rows of q may see no earlier ones, for which
 *     desc.window_left has to be below R. A score output is not supported.
 * With pages and rings Sk below is the longest of kv_lengths.
 *
 * Packed queries: the rows of all sequences lie one behind the other, those of sequence b from cu_seqlens_q[b] up to
 * cu_seqlens_q[b + 1]. With T = cu_seqlens_q[B], q is [1, Hq, T, Dk], out [1, Hq, T, Dv] and lse [1, Hq, T, 1]. A bias or
 * mask has extent 1 or T for rows and, if that is 1, may have B for the batch. Keys are [B, Hkv, Sk, D] as ever, with
 * kv_lengths, or packed in the same way by cu_seqlens_k: k [1, Hkv, Tk, Dk] and v [1, Hkv, Tk, Dv]; the last extent of a bias
 * or mask then is 1 or at least the keys of the longest sequence. Rows are the same to the bit as those of a padded batch.
 *
 * Scales: an integer n of a quantised k or v stands for n times its scale, a float32 that is one of
 *   - [1, 1, 1, 1], [1, Hkv, 1, 1]: the tensor's, or the kv head's;
 *   - [1, 1, 1, D], [1, Hkv, 1, D]: the channel's;
 *   - the first three extents of k or v, and ceil(D / 32): every key has one for each 32 elements. Where there are pages, a ring
 *     or packed keys, the scales lie as the keys do. Without pages extent[2] may be more, as it has to be where one key of one
 *     sequence could have the shape above. */
typedef struct hattn_attention_args {
    size_t struct_size;
    hattn_tensor q;      /* [B, Hq, Sq, Dk] */
    hattn_tensor k;      /* [B, Hkv, Sk, Dk]; Sk may be less than the plan's */
    hattn_tensor v;      /* [B, Hkv, Sk, Dv] */
    hattn_tensor out;    /* [B, Hq, Sq, Dv]; may not overlap any other tensor */
    hattn_tensor lse;    /* optional [B, Hq, Sq, 1] float32, natural log, includes the sink; any strides */
    hattn_tensor scores; /* [B, Hq, Sq, Sk] float32, given exactly if the plan has a score output; unit last stride */
    hattn_tensor bias;   /* float32, each extent 1 or that of [B, Hq, Sq, Sk] (stride ignored where 1) */
    hattn_tensor mask;   /* bool, likewise; nonzero: visible */
    const float *alibi_slopes;      /* [Hq] */
    const float *sinks;             /* [Hq] logits; zeros: smooth softmax */
    const int32_t *q_lengths;       /* [B] or null: Sq */
    const int32_t *kv_lengths;      /* [B] or null: Sk */
    const int32_t *causal_offsets;  /* [B] within +-2^29, or null: kv length - q length */
    const int32_t *cu_seqlens_q;    /* [B + 1], given exactly if the plan is for packed queries: 0, then where each sequence ends */
    const int32_t *cu_seqlens_k;    /* [B + 1] or null: keys are not packed. Only with packed queries, and in place of kv_lengths */
    void *workspace;                /* aligned to 64 bytes, hattn_plan_workspace_size() bytes; not shared by concurrent executes */
    size_t workspace_size;
    const int32_t *block_table;     /* given exactly if the plan has a page_size: [B, block_table_stride] indices of pages */
    int64_t block_table_stride;     /* at least the pages of the longest sequence; entries past a sequence's pages are not read */
    hattn_tensor k_scale, v_scale;  /* float32, any strides within the limits of docs/semantics.md, given exactly for
                                       int8 and int4: see above */
    const hattn_queue *queue;       /* of a device, or null: the library's */
    void *device_workspace;         /* of hattn_plan_device_workspace_size() bytes: CUdeviceptr aligned to 256, cl_mem that is no sub-buffer; or null */
    size_t device_workspace_size;
} hattn_attention_args;
HATTN_API void hattn_attention_args_init(hattn_attention_args *args);

/* What executes of problems like desc need to know. The context has to outlive the plan. *plan is written on HATTN_OK alone. */
HATTN_API hattn_status hattn_plan_create(hattn_context *context, const hattn_attention_desc *desc, hattn_plan **plan);
HATTN_API void hattn_plan_destroy(hattn_plan *plan);
/* Bytes of args' workspace. */
HATTN_API hattn_status hattn_plan_workspace_size(const hattn_plan *plan, size_t *bytes);
/* Bytes of args' device_workspace; 0 for plans on the CPU. */
HATTN_API hattn_status hattn_plan_device_workspace_size(const hattn_plan *plan, size_t *bytes);
/* The queue of the library's own, in which executes and caches on a device work that are given none, and on CUDA its context: for memory that
 * they can use (an OpenCL context is that of the queue). It lives as long as the process, and may be given as any other. HATTN_NOT_SUPPORTED without such a device. */
HATTN_API hattn_status hattn_device_queue(hattn_device device, int32_t device_id, hattn_queue *queue);
/* No allocation, no planning. Sq and Sk of the tensors may be below the plan's capacities.
 * On a device see hattn_queue. Its errors are HATTN_OUT_OF_MEMORY, HATTN_NOT_SUPPORTED (no such device, or one or a driver that is too
 * old) or HATTN_INTERNAL_ERROR. */
HATTN_API hattn_status hattn_plan_execute(const hattn_plan *plan, const hattn_attention_args *args);
/* JSON text: algorithm, kernel, target, tile parameters, tasks, workspace bytes, why. As hattn_info(). */
HATTN_API hattn_status hattn_plan_explain(const hattn_plan *plan, char *buffer, size_t capacity, size_t *size);
/* The same of a sequence of so many query rows and keys, from 0 to the plan's capacities, of a ring any keys: lengths
 * may choose another algorithm, kernel and split for it. Of a plan on a device, whose sequences share one kernel, as
 * hattn_plan_explain(). */
HATTN_API hattn_status hattn_plan_explain_sequence(const hattn_plan *plan, int64_t query_length, int64_t kv_length,
                                                   char *buffer, size_t capacity, size_t *size);

/* Plan, allocate a workspace through the context, execute, wait. args->workspace is ignored. */
HATTN_API hattn_status hattn_attention(hattn_context *context, const hattn_attention_desc *desc,
                                       const hattn_attention_args *args);

/* Merges `count` >= 1 states over disjoint key sets: out = sum_n exp(lse_n - lse) out_n, lse = ln sum_n exp(lse_n).
 * outs[n], out: [B, H, S, D] float32, float16 or bfloat16, each its own; lses[n], lse: [B, H, S, 1] float32. Sums are float32. A
 * state of lse = -inf weighs nothing, whatever its out holds; if all are, out = 0 and lse = -inf. out and lse may not overlap the inputs.
 * All are on the host, or all on one device, where D is at most 256 and the library's own queue is used. (Ye et al., FlashInfer, 2025.) */
HATTN_API hattn_status hattn_merge_states(hattn_context *context, int32_t count, const hattn_tensor *outs,
                                          const hattn_tensor *lses, const hattn_tensor *out, const hattn_tensor *lse);
/* The same in a queue of the tensors' device; null: the library's own, and on the host there is none. Takes memory on the device
 * (of at most 64 MiB of states at a time, or one row of each) and returns when results are there. */
HATTN_API hattn_status hattn_merge_states_in_queue(hattn_context *context, const hattn_queue *queue, int32_t count,
                                                   const hattn_tensor *outs, const hattn_tensor *lses,
                                                   const hattn_tensor *out, const hattn_tensor *lse);

/* ---- rotary position embedding ---------------------------------------------------------------------------------- */

typedef enum hattn_rope_style HATTN_ENUM_BASE {
    HATTN_ROPE_HALF_SPLIT = 0, /* pairs (i, i + rotary_dim/2): GPT-NeoX, Llama in the Hugging Face layout */
    HATTN_ROPE_INTERLEAVED = 1 /* pairs (2i, 2i + 1): RoFormer, GPT-J, Llama in its own layout */
} hattn_rope_style;

/* Rotary position embedding (Su et al., RoFormer, 2021): pair i of a row at position p is turned by the angle
 * p / scaling_factor * base^(-2i / rotary_dim), computed in double precision, or by the angle whose cosine and sine the
 * tables hold. The result is rounded to float32 once. Elements from rotary_dim on stay. */
typedef struct hattn_rope {
    size_t struct_size;
    hattn_rope_style style;
    int64_t rotary_dim;        /* leading elements of a head that turn: even, at most the head dimension; 0: all of them */
    double base;               /* > 0; 10000 by default */
    double scaling_factor;     /* > 0; 1 by default; n squeezes n times as many positions into the trained range */
    const float *cos_table;    /* both tables or neither; [table_positions, rotary_dim/2] contiguous; base and */
    const float *sin_table;    /* scaling_factor do not count then */
    int64_t table_positions;
    const int32_t *positions;  /* [B, S], >= 0, of each row; null: consecutive, see the function */
    int64_t positions_stride;  /* between sequences, in elements, >= 0; 0: all have the same */
} hattn_rope;
HATTN_API void hattn_rope_init(hattn_rope *rope);

/* out = x turned. x, out: [B, H, S, D] of one type, float32, float16 or bfloat16, to which the float32 result is rounded; any strides with 1 in the last dimension; they may be the same tensor and
 * may not overlap otherwise. offsets: [B], position of row 0 of each sequence, or null: 0; ignored if rope has positions.
 * lengths: [B], how many rows of each sequence are turned (0..S, leading ones), or null: all; the others of out are not
 * written. Queries of a cache's last rows have the offset length - S, see hattn_kv_rope_apply(). x and out are both on the host, or both on
 * one device, where the library's own queue is used, and rows are turned in float32 by angles computed in double precision. */
HATTN_API hattn_status hattn_rope_apply(hattn_context *context, const hattn_rope *rope, const hattn_tensor *x,
                                        const hattn_tensor *out, const int32_t *offsets, const int32_t *lengths);
/* The same in a queue of the tensors' device; null: the library's own, and on the host there is none. Takes memory on the device,
 * and returns when results are there. */
HATTN_API hattn_status hattn_rope_apply_in_queue(hattn_context *context, const hattn_queue *queue, const hattn_rope *rope,
                                                 const hattn_tensor *x, const hattn_tensor *out, const int32_t *offsets,
                                                 const int32_t *lengths);

/* ---- KV cache ------------------------------------------------------------------------------------------------ */

/* Three kinds of storage:
 *   - contiguous (page_size and window 0): [B, Hkv, capacity, D];
 *   - paged (page_size > 0): [page_count, Hkv, page_size, D]; a sequence takes a page when it needs one and gives it back when
 *     it is shortened. Sequences share pages after a fork; who appends to a page that others use too gets a copy first;
 *   - a ring (window > 0): [B, Hkv, R, D], R = capacity rounded up to 16; key j lies in row j % R, where it replaces key j - R.
 *     Lengths are unbounded (up to 2^29), memory never grows. For attention in which each query sees at most `window`
 *     keys, itself included. S rows at once need window + S - 1 <= R, and so does taking back S - 1 rows. */
typedef struct hattn_kv_cache_desc {
    size_t struct_size;
    hattn_dtype dtype;
    int64_t batch, kv_heads, capacity; /* capacity: keys per sequence; of a ring: keys kept per sequence, at least window */
    int64_t key_dim, value_dim;        /* value_dim 0: key_dim */
    int64_t page_size;                 /* 0, or keys per page: 16, 32, 64 or 128 */
    int64_t page_count;                /* pages of all sequences together; 0: enough for batch * capacity keys */
    int64_t window;                    /* 0, or the keys a query may see at most; excludes page_size */
    hattn_dtype value_dtype;           /* of the values; 0: dtype */
    /* Of int8 and int4, copied: [1, 1 or Hkv, 1, 1 or D] float32, scales of what is appended. Null: every key gets a scale for
     * each 32 elements, with which the largest of them becomes 127 or 7. */
    hattn_tensor k_scale, v_scale;
    /* Where rows are kept: on a device, in the context of `queue`, in which they are written as well; null: the library's
     * own, see hattn_queue. It has to outlive the cache. */
    hattn_device device;
    int32_t device_id;
    const hattn_queue *queue;
} hattn_kv_cache_desc;
HATTN_API void hattn_kv_cache_desc_init(hattn_kv_cache_desc *desc);

/* The cache keeps a reference to the context, which must outlive it. Memory for keys and values is taken once, here. To
 * destroy a cache on a device waits until what was appended is there. */
HATTN_API hattn_status hattn_kv_cache_create(hattn_context *context, const hattn_kv_cache_desc *desc,
                                             hattn_kv_cache **cache);
HATTN_API void hattn_kv_cache_destroy(hattn_kv_cache *cache);
/* Calls that put rows into a cache's queue and may be on their way at a time, appends and turns: one more waits for the first. */
#define HATTN_KV_CALLS_UNDER_WAY 4
/* Appends k, v [B, Hkv, S, D], each float32, float16 or bfloat16.
 * They are rounded to the cache's types, to nearest even; integers stay within +-127 or +-7. lengths [B] or null: how many of the S rows belong to each sequence (0..S, leading rows).
 * On a device k and v are there, or each on the host, from where it is copied; keys are turned in float32, by angles
 * computed in double precision. The work is put into the cache's queue, in which it comes before what follows there: when the queue
 * is done rows are there, and k and v of the device have to stay until then. k or v of the host are waited for, and have been read
 * when the call returns; others are not.
 * Memory for tables, and for rows in float32 that are to be quantised, is taken when more is needed than before, and kept.
 * All or nothing: HATTN_CAPACITY_EXCEEDED if any sequence would outgrow the cache, or if too few pages are free. Writes only
 * the new rows (and those a copied page held before them). */
HATTN_API hattn_status hattn_kv_append(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                                       const int32_t *lengths);
/* The same, turning the keys while they are written; rope may be null. Without positions, a row's is its place in its sequence. */
HATTN_API hattn_status hattn_kv_append_rope(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                                            const int32_t *lengths, const hattn_rope *rope);
/* The same of packed rows, as an execute takes queries: k [1, Hkv, T, Dk] and v [1, Hkv, T, Dv], of which those of sequence b go from
 * cu_seqlens[b] up to cu_seqlens[b + 1], of B + 1 entries; cu_seqlens[B] is T. rope's positions are [T]. */
HATTN_API hattn_status hattn_kv_append_packed(hattn_kv_cache *cache, const hattn_tensor *k, const hattn_tensor *v,
                                              const int32_t *cu_seqlens, const hattn_rope *rope);
/* Turns queries as hattn_rope_apply() does, x, out: [B, H, S, Dk], to their places among the cached keys: they are the last rows of each
 * sequence, whose keys have been appended before, unless rope has positions. lengths: [B], how many of the S rows each sequence has,
 * or null: all. Of a cache on a device x and out are on the host, or there: then the work is put into the cache's queue, in memory as an
 * append takes it. It is waited for if that is the library's own; in a queue that the cache was given x and out stay until it is done. */
HATTN_API hattn_status hattn_kv_rope_apply(hattn_kv_cache *cache, const hattn_rope *rope, const hattn_tensor *x,
                                           const hattn_tensor *out, const int32_t *lengths);
/* The same of packed rows, x and out [1, H, T, Dk], as hattn_kv_append_packed() takes them. */
HATTN_API hattn_status hattn_kv_rope_apply_packed(hattn_kv_cache *cache, const hattn_rope *rope, const hattn_tensor *x,
                                                  const hattn_tensor *out, const int32_t *cu_seqlens);
/* Makes sequence `to` the first `length` keys of sequence `from` (-1: all), in place of what it held. Shares pages, or
 * copies rows, on a device in the order of the cache's queue; where these cannot be copied, `to` is empty afterwards. A
 * ring has to hold the window before `length`, as for truncate. */
HATTN_API hattn_status hattn_kv_cache_fork(hattn_kv_cache *cache, int64_t from, int64_t to, int64_t length);
/* lengths: [B], written. */
HATTN_API hattn_status hattn_kv_cache_lengths(const hattn_kv_cache *cache, int32_t *lengths);
/* Shortens every sequence to lengths[b] (0..current). A ring allows any length until a sequence has outgrown R keys; then
 * 0, or lengths whose last `window` keys have not been replaced. */
HATTN_API hattn_status hattn_kv_cache_truncate(hattn_kv_cache *cache, const int32_t *lengths);
HATTN_API hattn_status hattn_kv_cache_reset(hattn_kv_cache *cache);
/* Views of the whole storage as above, for plans of one's own. What the cache's queue has yet to write on a device is not
 * waited for. */
HATTN_API hattn_status hattn_kv_cache_view(const hattn_kv_cache *cache, hattn_tensor *k, hattn_tensor *v);
/* Scales of the storage, as hattn_attention_args takes them; data is null where the type has none. Those of each key have two
 * rows at least. */
HATTN_API hattn_status hattn_kv_cache_scales(const hattn_kv_cache *cache, hattn_tensor *k_scale, hattn_tensor *v_scale);
/* Of a paged cache: pages that sequences use, and the others. */
HATTN_API hattn_status hattn_kv_cache_pages(const hattn_kv_cache *cache, int64_t *used, int64_t *available);
/* Of a paged cache: the pages of each sequence, [B, *stride] in the order of keys; -1 past its last one. Points into the cache:
 * valid until the next change. */
HATTN_API hattn_status hattn_kv_cache_block_table(const hattn_kv_cache *cache, const int32_t **table, int64_t *stride);
/* Fills in the cache's part of an attention, for plans of one's own: desc's device if the cache is on one, kv_heads, key_dim, value_dim, page_size, ring, k_dtype,
 * v_dtype and kv_length (of the storage, so that a plan serves all later steps); args' k, v, scales, kv_lengths and block table, which point into
 * the cache: valid until the next change. On a device, executes in another queue than the cache's have to be put behind it by the caller;
 * hattn_kv_cache_attend waits then. Of a ring it checks that the rows of args' q (with its q_lengths and
 * causal_offsets) see stored keys only. */
HATTN_API hattn_status hattn_kv_cache_bind(const hattn_kv_cache *cache, hattn_attention_desc *desc,
                                           hattn_attention_args *args);
/* hattn_attention() over the cached keys: bind, plan, execute. With a ring, desc's window_left must be below the cache's window.
 * A bias, mask or score output has the longest sequence's current length as its last extent. */
HATTN_API hattn_status hattn_kv_cache_attend(hattn_kv_cache *cache, const hattn_attention_desc *desc,
                                             const hattn_attention_args *args);

#ifdef __cplusplus
}
#endif
#endif /* HATTN_HATTN_H */
