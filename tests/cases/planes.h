// Work on the planes of a tensor, by several threads if it is large.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "hattn/hattn.h"
#include "tensor_data.h"

namespace hattn::cases {

// visit(i0, i1, elements) for every plane [i0, i1, :, :], each once, in any order, where elements(visit) is
// for_each_index() of the plane: of a large tensor in several threads, if its elements are not shared by planes. visit
// may not throw.
template<typename Visit>
void for_each_plane(const hattn_tensor &tensor, const Visit &visit) {
    constexpr int64_t kLarge = int64_t{1} << 20;  // elements
    const int64_t rows = tensor.extent[1], planes = tensor.extent[0] * rows;
    const auto repeats = [&](int dim) { return tensor.extent[dim] > 1 && tensor.stride[dim] == 0; };
    const bool alone = planes * tensor.extent[2] * tensor.extent[3] < kLarge || repeats(0) || repeats(1);
    std::atomic<int64_t> next{0};
    const auto work = [&] {
        for (int64_t i; (i = next.fetch_add(1)) < planes;) {
            const int64_t i0 = i / rows, i1 = i % rows;
            visit(i0, i1, [&](const auto &of_element) {
                for_each_index({1, 1, tensor.extent[2], tensor.extent[3]},
                               [&](int64_t, int64_t, int64_t i2, int64_t i3) { of_element(i0, i1, i2, i3); });
            });
        }
    };
    const int64_t most = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
    std::vector<std::thread> others(alone ? 0 : static_cast<size_t>(std::min(most, planes) - 1));
    for (std::thread &other : others) {
        other = std::thread(work);
    }
    work();
    for (std::thread &other : others) {
        other.join();
    }
}

}  // namespace hattn::cases
