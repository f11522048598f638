#include "packed_code.h"

#include <zlib.h>

#include <cstring>
#include <stdexcept>

#include "runtime/device/device_code.h"

namespace hattn::generators {

using namespace Halide;

namespace {

Buffer<uint8_t> packed(const Buffer<uint8_t> &code) {
    const PackedCodeHeader header = {static_cast<uint32_t>(code.size_in_bytes())};
    uLongf bytes = compressBound(header.text_bytes);
    std::vector<uint8_t> data(sizeof(header) + bytes);
    std::memcpy(data.data(), &header, sizeof(header));
    if (compress2(data.data() + sizeof(header), &bytes, code.data(), header.text_bytes, Z_BEST_COMPRESSION) != Z_OK) {
        throw std::runtime_error("zlib cannot pack device code");
    }
    Buffer<uint8_t> result(static_cast<int>(sizeof(header) + bytes), code.name());
    std::memcpy(result.data(), data.data(), result.size_in_bytes());
    return result;
}

// The call that hands code to the driver says how long it is.
class CodeLength : public Internal::IRMutator {
public:
    explicit CodeLength(int bytes) : bytes_(bytes) {}

private:
    using IRMutator::visit;

    Expr visit(const Internal::Call *call) override {
        if (!Internal::ends_with(call->name, "_initialize_kernels")) {
            return IRMutator::visit(call);
        }
        std::vector<Expr> args = call->args;  // (state, code, bytes)
        args.back() = bytes_;
        return Internal::Call::make(call->type, call->name, args, call->call_type);
    }

    const int bytes_;
};

}  // namespace

Module with_packed_code(const Module &module) {
    Buffer<uint8_t> unpacked = module.get_device_code_buffer();
    const Buffer<uint8_t> code = packed(unpacked);
    Module result(module.name(), module.target());
    for (const Buffer<> &buffer : module.buffers()) {
        result.append(buffer.name() == code.name() ? Buffer<>(code) : buffer);
    }
    CodeLength length(static_cast<int>(code.size_in_bytes()));
    for (Internal::LoweredFunc function : module.functions()) {
        function.body = length.mutate(function.body);
        result.append(function);
    }
    return result;
}

}  // namespace hattn::generators
