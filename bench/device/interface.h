/* What bench/device_library.py calls: C alone, so that any Python can, also one that hattn's module is not built for.
 * Functions that give a pointer give null, and those that give seconds a negative number, where there is an error,
 * which hattn_device_bench_error() then tells. Texts live until the thread's next call. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

const char *hattn_device_bench_error(void);
const char *hattn_device_bench_info(void); /* as hattn_info() */

/* device: as of a shape, "cuda" or "cuda:1". JSON: see device_attributes(). */
const char *hattn_device_bench_attributes(const char *device);

/* shape: JSON, see read_shape(). Verified by check: "" or a sentence. */
void *hattn_device_bench_attention(const char *shape);
const char *hattn_device_bench_attention_describe(void *attention);
const char *hattn_device_bench_attention_check(void *attention);
double hattn_device_bench_attention_seconds(void *attention, int runs);
void hattn_device_bench_attention_close(void *attention);

void *hattn_device_bench_copy(const char *device, double bytes);
double hattn_device_bench_copy_seconds(void *copy, int runs);
void hattn_device_bench_copy_close(void *copy);

/* Of CUDA. Seconds are those of so many times its operations. */
void *hattn_device_bench_multiply_adds(const char *device);
double hattn_device_bench_multiply_adds_operations(void *multiply_adds);
double hattn_device_bench_multiply_adds_seconds(void *multiply_adds, int runs);
void hattn_device_bench_multiply_adds_close(void *multiply_adds);

#ifdef __cplusplus
}
#endif
