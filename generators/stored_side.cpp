#include "stored_side.h"

#include <iterator>

#include "number_formats.h"

namespace hattn::generators {

using namespace Halide;

Expr granule_element(const ImageParam &storage, const ImageParam &granules, Expr d, Expr granule, Expr slot) {
    Expr at = unsafe_promise_clamped(granules(std::move(granule)), storage.dim(2).min(), storage.dim(2).max());
    return storage(std::move(d), std::move(slot), at);
}

namespace {

constexpr int kAskedBytes = 64;  // a cache line

}  // namespace

int line_elements(const ImageParam &storage) {
    return kAskedBytes / storage.type().bytes();
}

Expr prefetch_line(const ImageParam &storage, Expr offset) {
    using Internal::Call;
    Expr base = Internal::Variable::make(Handle(), storage.name(), storage.parameter());
    const int elements = line_elements(storage);
    // Offsets count elements of the type of the call.
    const Type counted = storage.type();
    return cast<float>(Call::make(counted, Call::prefetch, {base, std::move(offset), 1, elements}, Call::Intrinsic));
}

Expr prefetch_address(const Expr &address) {
    using Internal::Call;
    return cast<float>(
        Call::make(UInt(8), Call::prefetch, {reinterpret(Handle(), address), 0, 1, kAskedBytes}, Call::Intrinsic));
}

Expr address_of(const ImageParam &storage, const Expr &offset) {
    Expr base = Internal::Variable::make(Handle(), storage.name(), storage.parameter());
    return reinterpret<uint64_t>(base) + cast<uint64_t>(cast<int64_t>(offset) * storage.type().bytes());
}

StoredSide::StoredSide(const std::string &side, int lanes)
    : lanes(lanes),
      type(side + "_type"),
      lines(side + "_lines"),
      halves(UInt(16), 3, side + "_halves"),
      bytes(UInt(8), 3, side + "_bytes"),
      channel_scales(Float(32), 1, side + "_channel_scales"),
      block_scales(Float(32), 3, side + "_block_scales"),
      scale_granules(Int(32), 1, side + "_scale_granules") {
    channel_scales.dim(0).set_stride(Expr());
    block_scales.dim(0).set_stride(Expr());
}

std::vector<Argument> StoredSide::arguments() const {
    return {type, lines, halves, bytes, channel_scales, block_scales, scale_granules};
}

Expr StoredSide::one_scale() const {
    Expr one = block_scales.dim(0).stride() == 0;
    for (int i = 1; i < block_scales.dimensions(); ++i) {
        one = one && block_scales.dim(i).stride() == 0;
    }
    return one;
}

Expr StoredSide::common_scale() const {
    Expr any = block_scales(block_scales.dim(0).min(), block_scales.dim(1).min(), block_scales.dim(2).min());
    return select(one_scale(), any, 1.0f);
}

Expr StoredSide::block_scale(Expr block, Expr granule, Expr slot) const {
    return granule_element(block_scales, scale_granules, std::move(block), std::move(granule), std::move(slot));
}

Expr StoredSide::element_of(hattn_dtype of_type, const ImageParam &floats, const ImageParam &granules, Expr d,
                            Expr granule, Expr slot, bool part_words) const {
    const auto stored = [&](const ImageParam &view, Expr at) {
        return granule_element(view, granules, std::move(at), granule, slot);
    };
    const auto byte = [&](Expr at) {
        return stored(bytes, part_words ? min(likely(std::move(at)), bytes.dim(0).extent() - 1) : std::move(at));
    };
    const auto scale = [&] { return block_scale(quotient(d, lanes) / (kScaleBlock / lanes), granule, slot); };
    switch (of_type) {
    case HATTN_FLOAT16:
        return float16_value(stored(halves, d));
    case HATTN_BFLOAT16:
        return bfloat16_value(stored(halves, d));
    case HATTN_INT8:
        return cast<float>(reinterpret<int8_t>(stored(bytes, d))) * scale();
    case HATTN_INT4:
        return int4_value(byte, d, lanes) * scale();
    default:
        return stored(floats, d);
    }
}

Expr StoredSide::element(const ImageParam &floats, const ImageParam &granules, Expr d, Expr granule, Expr slot) const {
    const auto of = [&](hattn_dtype of_type) { return element_of(of_type, floats, granules, d, granule, slot, true); };
    Expr selected = of(*std::rbegin(kStorageTypes));  // what remains
    for (auto other = std::rbegin(kStorageTypes) + 1; other != std::rend(kStorageTypes); ++other) {
        selected = select(type == *other, of(*other), selected);
    }
    return selected;
}

}  // namespace hattn::generators
