// What the host's side of device kernels calls of Halide's runtime. Kernels of the library call it by name, those of
// packs, which are linked without it, through the pointers that their user context starts with.
#pragma once

#include <HalideRuntime.h>

#include <cstddef>
#include <cstdint>

#include "hattn/hattn.h"

namespace hattn {

// As generators/pack_writer.cpp has them.
struct LaunchFunctions {
    int (*copy_to_device)(void *context, halide_buffer_t *buffer, const halide_device_interface_t *);
    int (*initialize_kernels)(void *context, void **state, const char *packed, int bytes);
    void (*finalize_kernels)(void *context, void *state);
    int (*run)(void *context, void *state, const char *name, int blocks_x, int blocks_y, int blocks_z, int threads_x,
               int threads_y, int threads_z, int shared_bytes, size_t sizes[], void *arguments[], int8_t are_buffers[]);
};

const LaunchFunctions &launch_functions(hattn_device device);

}  // namespace hattn
