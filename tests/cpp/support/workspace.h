// A workspace of exactly the size asked for, between canaries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "hattn/hattn.h"

namespace hattn::test {

class Workspace {
public:
    static constexpr size_t kAlignment = 64;

    explicit Workspace(size_t bytes) : memory_(bytes + 2 * kCanary + kAlignment, kCanaryByte), size_(bytes) {
        auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kCanary;
        begin_ = kCanary + (kAlignment - address % kAlignment) % kAlignment;
    }

    void *data() {
        return memory_.data() + begin_;
    }
    size_t size() const {
        return size_;
    }

    void give_to(hattn_attention_args &args) {
        args.workspace = data();
        args.workspace_size = size_;
    }

    // Nothing outside the workspace was written.
    bool intact() const {
        auto first = memory_.begin();
        auto is_canary = [](unsigned char byte) { return byte == kCanaryByte; };
        return std::all_of(first, first + static_cast<std::ptrdiff_t>(begin_), is_canary) &&
               std::all_of(first + static_cast<std::ptrdiff_t>(begin_ + size_), memory_.end(), is_canary);
    }

private:
    static constexpr size_t kCanary = 256;
    static constexpr unsigned char kCanaryByte = 0xc3;
    std::vector<unsigned char> memory_;
    size_t size_;
    size_t begin_ = 0;
};

}  // namespace hattn::test
