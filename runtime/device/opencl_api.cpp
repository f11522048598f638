#include "opencl_api.h"

#include <dlfcn.h>

namespace hattn::opencl {

namespace {

Api load_api() {
    Api api = {};
    void *const library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_LOCAL);
    const auto find = [&]<typename Function>(Function *&function, const char *name) {
        function = library ? reinterpret_cast<Function *>(dlsym(library, name)) : nullptr;
        return function != nullptr;
    };
    const bool complete =
        find(api.platforms, "clGetPlatformIDs") && find(api.platform_info, "clGetPlatformInfo") &&
        find(api.devices, "clGetDeviceIDs") && find(api.device_info, "clGetDeviceInfo") &&
        find(api.create_context, "clCreateContext") && find(api.create_queue, "clCreateCommandQueue") &&
        find(api.queue_info, "clGetCommandQueueInfo") && find(api.context_info, "clGetContextInfo") &&
        find(api.write_buffer, "clEnqueueWriteBuffer") && find(api.finish, "clFinish") &&
        find(api.marker, "clEnqueueMarker") && find(api.wait_for_events, "clWaitForEvents") &&
        find(api.release_event, "clReleaseEvent") && find(api.create_buffer, "clCreateBuffer") &&
        find(api.create_sub_buffer, "clCreateSubBuffer") && find(api.release_memory, "clReleaseMemObject") &&
        find(api.memory_info, "clGetMemObjectInfo") && find(api.create_program, "clCreateProgramWithSource") &&
        find(api.build_program, "clBuildProgram") && find(api.build_info, "clGetProgramBuildInfo") &&
        find(api.release_program, "clReleaseProgram") && find(api.create_kernel, "clCreateKernel") &&
        find(api.set_argument, "clSetKernelArg") && find(api.launch, "clEnqueueNDRangeKernel");
    if (!complete) {
        api.unusable = library ? "libOpenCL.so.1 is older than OpenCL 1.1" : "there is no OpenCL (libOpenCL.so.1)";
    }
    return api;
}

}  // namespace

const Api &api() {
    static const Api loaded = load_api();
    return loaded;
}

std::string error_text(Result result) {
    return "OpenCL error " + std::to_string(result);
}

}  // namespace hattn::opencl
