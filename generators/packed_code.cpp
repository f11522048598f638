#include "packed_code.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/device/device_code.h"

namespace hattn::generators {

using namespace Halide;

namespace {

// PTX without comments, indentation and empty lines, a twelfth of what is packed.
std::string terse(const std::string &ptx) {
    std::istringstream lines(ptx);
    std::string result;
    for (std::string line; std::getline(lines, line);) {
        line.erase(std::min(line.find("//"), line.size()));
        line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
        line.erase(line.find_last_not_of(" \t") + 1);
        result += line.empty() ? "" : line + "\n";
    }
    return result;
}

Buffer<uint8_t> packed(const Buffer<uint8_t> &code, bool is_ptx) {
    const std::string whole(reinterpret_cast<const char *>(code.data()));
    const std::string text = is_ptx ? terse(whole) : whole;
    const PackedCodeHeader header = {static_cast<uint32_t>(text.size() + 1)};
    uLongf bytes = compressBound(header.text_bytes);
    std::vector<uint8_t> data(sizeof(header) + bytes);
    std::memcpy(data.data(), &header, sizeof(header));
    const auto *first = reinterpret_cast<const Bytef *>(text.c_str());
    if (compress2(data.data() + sizeof(header), &bytes, first, header.text_bytes, Z_BEST_COMPRESSION) != Z_OK) {
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
    const Buffer<uint8_t> code = packed(unpacked, module.target().has_feature(Target::CUDA));
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
