// What the machine reaches at best, for the kernel that is looked at, on one thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "machine_limits.h"
#include "runtime/kernel_table.h"

namespace hattn::roofline {

class Peaks {
public:
    Peaks(bench::Isa isa, KeyStorage storage);

    void look();  // for some 60 ms

    double multiply_adds() const {  // in float32, floating-point operations per second, a multiply-add being two
        return multiply_adds_.value();
    }
    // Likewise, of the instruction that multiplies in kernels over the storage. Of integers those in float32: there is
    // no other measure.
    double products() const;
    std::string products_name() const;
    double reads() const {  // bytes per second, from the first-level cache
        return reads_.value();
    }

private:
    enum class Products { kMultiplyAdds, kBfloat16, kMatrices };

    bench::Isa isa_;
    Products kind_;
    // Three quarters of the smallest first-level caches.
    alignas(64) std::array<std::byte, 24576> cached_ = {};
    bench::Best multiply_adds_, products_, reads_;
};

}  // namespace hattn::roofline
