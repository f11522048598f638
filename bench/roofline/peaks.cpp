#include "peaks.h"

#include <vector>

namespace hattn::roofline {

namespace {

// As short as runs of kernels: where others share the core, the best of many is likelier to be undisturbed.
constexpr double kLook = 0.002;  // seconds
constexpr int kLooks = 10;
constexpr size_t kPasses = 64;  // over what is cached, between looks at the clock

}  // namespace

Peaks::Peaks(bench::Isa isa, KeyStorage storage)
    : isa_(isa),
      kind_(multiplies_matrices(storage) ? Products::kMatrices
            : multiplies_stored(storage) ? Products::kBfloat16
                                         : Products::kMultiplyAdds) {}

void Peaks::look() {
    const std::vector<bench::Span> spans(kPasses, {cached_.data(), cached_.size()});
    for (int look = 0; look < kLooks; ++look) {
        multiply_adds_.offer(bench::measure_flops(isa_, 1, kLook));
        reads_.offer(bench::measure_read(spans, 1, kLook));
        if (kind_ != Products::kMultiplyAdds) {
            products_.offer(kind_ == Products::kMatrices ? bench::measure_matrix_flops(1, kLook)
                                                         : bench::measure_bfloat16_flops(1, kLook));
        }
    }
}

double Peaks::products() const {
    return products_.value() > 0.0 ? products_.value() : multiply_adds();
}

std::string Peaks::products_name() const {
    if (products_.value() > 0.0) {
        return kind_ == Products::kMatrices ? "products of bfloat16 matrices" : "products of bfloat16 pairs";
    }
    return std::string(isa_name(isa_)) + " multiply-adds";
}

}  // namespace hattn::roofline
