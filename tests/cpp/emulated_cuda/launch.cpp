#include "launch.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "fault.h"
#include "warp.h"

namespace hattn::emulated_cuda {

namespace {

std::vector<uint8_t> parameter_block(const Program &program, void *const *arguments) {
    std::vector<uint8_t> block;
    for (size_t i = 0; i < program.parameter_bytes.size(); ++i) {
        const auto bytes = static_cast<size_t>(program.parameter_bytes[i]);
        block.resize(program.parameter_offsets[i] + bytes);
        std::memcpy(block.data() + program.parameter_offsets[i], arguments[i], bytes);
    }
    return block;
}

// The n-th of them, counted from 1.
template<typename Is>
std::optional<size_t> instruction_at(const Program &program, int n, const Is &is) {
    for (size_t i = 0; i < program.code.size(); ++i) {
        if (is(program.code[i]) && --n == 0) {
            return i;
        }
    }
    return {};
}

std::optional<size_t> barrier_at(const Program &program, int n) {
    return instruction_at(program, n, [](const Instruction &i) { return i.flow == Flow::kBarrier; });
}

std::optional<size_t> wait_at(const Program &program, int n) {
    return instruction_at(program, n, [](const Instruction &i) { return i.text->starts_with("cp.async.wait_group"); });
}

class Launch {
public:
    Launch(const Program &program, const LaunchShape &shape, void *const *arguments, Allocations &allocations,
           const LeftOut &left_out)
        : shape_(shape),
          parameters_(parameter_block(program, arguments)),
          memory_(allocations, shape.shared_bytes),
          threads_(static_cast<int>(shape.threads[0] * shape.threads[1] * shape.threads[2])),
          most_threads_(program.most_threads),
          ignored_barrier_(barrier_at(program, left_out.barrier)) {
        for (int first = 0; first < threads_; first += kLanes) {
            warps_.emplace_back(program, parameters_.data(), memory_, first, threads_ - first,
                                wait_at(program, left_out.wait));
        }
    }

    void run() {
        if (most_threads_ > 0 && threads_ > most_threads_) {
            throw Fault(kOutOfResources, "the launch has " + std::to_string(threads_) +
                                             " threads in a block, but the kernel is for at most " +
                                             std::to_string(most_threads_));
        }
        memory_.start_launch();
        uint32_t block[3];
        for (block[2] = 0; block[2] < shape_.blocks[2]; ++block[2]) {
            for (block[1] = 0; block[1] < shape_.blocks[1]; ++block[1]) {
                for (block[0] = 0; block[0] < shape_.blocks[0]; ++block[0]) {
                    run_block(block);
                }
            }
        }
    }

private:
    void run_block(const uint32_t (&block)[3]) {
        try {
            memory_.start_block();
            for (Warp &warp : warps_) {
                start(warp, block);
            }
            while (run_interval()) {
            }
        } catch (const Fault &fault) {
            throw Fault(fault.result, "block " + std::to_string(block[0]) + ", " + std::to_string(block[1]) + ", " +
                                          std::to_string(block[2]) + ": " + fault.what());
        }
    }

    void start(Warp &warp, const uint32_t (&block)[3]) {
        uint32_t special[kSpecialRegisters][kLanes];
        for (uint32_t lane = 0; lane < kLanes; ++lane) {
            const uint32_t thread = static_cast<uint32_t>(warp.first_thread()) + lane;
            special[kTidX][lane] = thread % shape_.threads[0];
            special[kTidY][lane] = thread / shape_.threads[0] % shape_.threads[1];
            special[kTidZ][lane] = thread / (shape_.threads[0] * shape_.threads[1]);
            for (int i = 0; i < 3; ++i) {
                special[kCtaidX + i][lane] = block[i];
                special[kNtidX + i][lane] = shape_.threads[i];
            }
        }
        warp.start(special);
    }

    // From a barrier to the next. False: all threads have ended.
    bool run_interval() {
        std::optional<size_t> barrier;
        size_t arrived = 0;
        for (Warp &warp : warps_) {
            bool stopped = warp.run();
            while (stopped && warp.barrier() == ignored_barrier_) {
                stopped = warp.run();
            }
            if (stopped) {
                if (barrier.value_or(warp.barrier()) != warp.barrier()) {
                    throw Fault(kLaunchFailed, "divergent barrier: warps of a block are at different ones");
                }
                barrier = warp.barrier();
                ++arrived;
            }
        }
        if (arrived != 0 && arrived != warps_.size()) {
            throw Fault(kLaunchFailed, "divergent barrier: warps wait that others have passed or never reach");
        }
        memory_.pass_barrier();
        return arrived != 0;
    }

    const LaunchShape &shape_;
    const std::vector<uint8_t> parameters_;
    Memory memory_;
    const int threads_;
    const int most_threads_;
    const std::optional<size_t> ignored_barrier_;
    std::vector<Warp> warps_;
};

}  // namespace

void launch(const Program &program, const LaunchShape &shape, void *const *arguments, Allocations &allocations,
            const LeftOut &left_out) {
    Launch(program, shape, arguments, allocations, left_out).run();
}

}  // namespace hattn::emulated_cuda
