// An application's own OpenCL context, queue and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hattn/hattn.h"
#include "tensor_data.h"

namespace hattn::test {

class OpenClQueue {
public:
    // On the first device of the first platform; throws std::runtime_error if there is none.
    explicit OpenClQueue(uint64_t properties = 0);

    hattn_queue handle() const;
    void finish() const;
    std::shared_ptr<void> memory(size_t bytes, const void *contents = nullptr) const;
    // A part of such memory, as memory of its own.
    std::shared_ptr<void> part(size_t offset, size_t bytes) const;
    void read(void *memory, void *to, size_t bytes) const;
    void write(void *memory, const void *from, size_t bytes) const;

private:
    std::shared_ptr<void> context_, queue_;
};

// A tensor that lies in OpenCL memory from some byte on, and goes back to where it was.
class OpenClTensor {
public:
    OpenClTensor(const OpenClQueue &queue, cases::TensorData &tensor, size_t first_byte);
    void fetch() const;
    const hattn_tensor &view() const {
        return view_;
    }

private:
    const OpenClQueue &queue_;
    cases::TensorData &tensor_;
    std::shared_ptr<void> memory_;
    size_t first_byte_;
    hattn_tensor view_;
};

}  // namespace hattn::test
