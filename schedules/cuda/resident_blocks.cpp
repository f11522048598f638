#include "resident_blocks.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace hattn::schedules::cuda {

namespace {

using namespace Halide::Internal;

// Of a block of the launches in the code of the host.
class LaunchedThreads : public IRVisitor {
public:
    int64_t most = 0;

private:
    using IRVisitor::visit;

    // halide_cuda_run(state, kernel, three numbers of blocks, three of threads, ...)
    void visit(const Call *call) override {
        if (call->name == "halide_cuda_run") {
            int64_t threads = 1;
            for (size_t i = 5; i < 8; ++i) {
                threads *= as_const_int(call->args.at(i)).value_or(0);
            }
            most = threads == 0 ? 0 : std::max(most, threads);
        }
        IRVisitor::visit(call);
    }
};

}  // namespace

std::string with_resident_blocks(const std::string &ptx, int threads, int blocks) {
    std::istringstream lines(ptx);
    std::string text;
    bool in_entry = false, asked = false;
    for (std::string line; std::getline(lines, line);) {
        line.erase(std::min(line.find("//"), line.size()));
        line.erase(line.find_last_not_of(" \t") + 1);
        if (line.empty()) {
            continue;
        }
        text += line + "\n";
        in_entry = in_entry || line.find(".entry") != std::string::npos;
        if (in_entry && !asked && line.back() == ')') {
            text += ".maxntid " + std::to_string(threads) + "\n.minnctapersm " + std::to_string(blocks) + "\n";
            asked = true;
        }
    }
    if (!asked || text.size() > ptx.size()) {
        throw std::runtime_error("PTX has no place to ask for resident blocks");
    }
    return text;
}

void ask_for_resident_blocks(const Halide::Module &module, int threads, int blocks) {
    LaunchedThreads launched;
    for (const LoweredFunc &function : module.functions()) {
        function.body.accept(&launched);
    }
    if (launched.most != threads) {
        throw std::runtime_error("a block has " + std::to_string(launched.most) + " threads, but " +
                                 std::to_string(threads) + " are asked for");
    }
    Halide::Buffer<> code = module.get_device_code_buffer();
    auto *data = static_cast<char *>(code.data());
    const size_t size = code.number_of_elements();
    const auto length = static_cast<size_t>(std::find(data, data + size, '\0') - data);
    const std::string text = with_resident_blocks(std::string(data, length), threads, blocks);
    std::fill(std::copy(text.begin(), text.end(), data), data + length, '\n');
}

}  // namespace hattn::schedules::cuda
