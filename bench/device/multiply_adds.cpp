#include "multiply_adds.h"

#include <stdexcept>
#include <string>

#include "driver_function.h"

namespace hattn::bench {

namespace {

using autotune::check_driver;
using autotune::cuda_function;
using autotune::CudaContextScope;

// All threads that a multiprocessor holds; chains that do not wait for one another hide the latency of one.
constexpr unsigned kThreads = 256, kBlocksPerMultiprocessor = 8;
constexpr int kChains = 16, kUnrolled = 16;

// A round is kUnrolled times a multiply-add of every chain, x = x * 0.5 + 1, which ends at 2. %r10 and %r11 are factor
// and term, chains begin at %r16.
constexpr int kFirstChain = 16;

std::string chain(int index) {
    return "%r" + std::to_string(kFirstChain + index);
}

std::string ptx() {
    std::string text = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry multiply_adds(
    .param .u64 sums,
    .param .u32 rounds
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<5>;
    mov.b32 %r10, 0f3F000000;
    mov.b32 %r11, 0f3F800000;
    ld.param.b64 %rd1, [sums];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.b32 %r1, [rounds];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mad.lo.s32 %r4, %r3, )" +
                       std::to_string(kThreads) + ", %r2;\n    cvt.rn.f32.s32 " + chain(0) + ", %r2;\n";
    for (int i = 1; i < kChains; ++i) {
        text += "    add.f32 " + chain(i) + ", " + chain(i - 1) + ", %r11;\n";
    }
    text += "$round:\n";
    for (int i = 0; i < kUnrolled * kChains; ++i) {
        const std::string x = chain(i % kChains);
        text += "    fma.rn.f32 " + x + ", " + x + ", %r10, %r11;\n";
    }
    text += "    add.s32 %r1, %r1, -1;\n    setp.ne.b32 %p1, %r1, 0;\n    @%p1 bra $round;\n";
    for (int i = 1; i < kChains; ++i) {
        text += "    add.f32 " + chain(0) + ", " + chain(0) + ", " + chain(i) + ";\n";
    }
    return text + "    mul.wide.s32 %rd3, %r4, 4;\n    add.s64 %rd4, %rd2, %rd3;\n    st.global.b32 [%rd4], " +
           chain(0) + ";\n    ret;\n}\n";
}

unsigned multiprocessors(int32_t device_id) {
    constexpr int kMultiprocessors = 16;  // CUdevice_attribute
    int device = 0, count = 0;
    check_driver(cuda_function<int(int *, int)>("cuDeviceGet")(&device, device_id), "cuDeviceGet");
    check_driver(cuda_function<int(int *, int, int)>("cuDeviceGetAttribute")(&count, kMultiprocessors, device),
                 "cuDeviceGetAttribute");
    return static_cast<unsigned>(count);
}

}  // namespace

MultiplyAdds::MultiplyAdds(hattn_device device, int32_t device_id) : clock_(device, device_id) {
    if (device != HATTN_CUDA) {
        throw std::runtime_error("multiply-adds are measured on CUDA alone");
    }
    blocks_ = kBlocksPerMultiprocessor * multiprocessors(device_id);
    sums_ = autotune::make_device_memory(device, device_id, size_t{blocks_} * kThreads * sizeof(float));
    const CudaContextScope current(clock_.queue().context);
    void *module = nullptr;  // stays until the process ends
    check_driver(cuda_function<int(void **, const void *)>("cuModuleLoadData")(&module, ptx().c_str()),
                 "cuModuleLoadData");
    check_driver(
        cuda_function<int(void **, void *, const char *)>("cuModuleGetFunction")(&kernel_, module, "multiply_adds"),
        "cuModuleGetFunction");
}

double MultiplyAdds::operations() const {
    return 2.0 * kUnrolled * kChains * kThreads * blocks_;
}

double MultiplyAdds::seconds(int runs) const {
    using Launch =
        int(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    void *sums = sums_->handle();
    int rounds = runs;
    void *arguments[] = {&sums, &rounds};
    const double seconds = clock_.seconds([&] {
        const CudaContextScope current(clock_.queue().context);
        check_driver(cuda_function<Launch>("cuLaunchKernel")(kernel_, blocks_, 1, 1, kThreads, 1, 1, 0,
                                                             clock_.queue().queue, arguments, nullptr),
                     "cuLaunchKernel");
    });
    float first = 0.0f;
    sums_->read(&first, sizeof(first));
    if (first != 2.0f * kChains && runs * kUnrolled >= 64) {
        throw std::runtime_error("multiply-adds: the sum of a thread is " + std::to_string(first) + ", but must be " +
                                 std::to_string(2 * kChains));
    }
    return seconds;
}

}  // namespace hattn::bench
