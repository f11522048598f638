#include "kernel_inputs.h"

namespace hattn::generators {

using namespace Halide;

void allow_any_stride(ImageParam &input) {
    input.dim(0).set_stride(Expr());
}

void allow_any_stride(Func &output) {
    output.output_buffer().dim(0).set_stride(Expr());
}

Expr cache_lines(Expr floats) {
    return (std::move(floats) + (kLineFloats - 1)) / kLineFloats;
}

AttentionInputs::AttentionInputs()
    : query(Float(32), 3, "query"),
      key(Float(32), 3, "key"),
      value(Float(32), 3, "value"),
      key_granules(Int(32), 1, "key_granules"),
      value_granules(Int(32), 1, "value_granules"),
      bias(Float(32), 3, "bias"),
      mask(UInt(8), 3, "mask"),
      alibi_slopes(Float(32), 1, "alibi_slopes"),
      sinks(Float(32), 1, "sinks"),
      known_lse(Float(32), 1, "known_lse"),
      key_count("key_count"),
      key_skip("key_skip"),
      scale("scale"),
      softcap("softcap"),
      first_offset("first_offset"),
      last_offset("last_offset"),
      position_offset("position_offset") {
    for (ImageParam *strided : {&bias, &mask, &alibi_slopes, &known_lse}) {
        allow_any_stride(*strided);
    }
}

std::vector<Argument> AttentionInputs::arguments() const {
    return {query, key,          value,        key_granules, value_granules, bias,
            mask,  alibi_slopes, sinks,        known_lse,    key_count,      key_skip,
            scale, softcap,      first_offset, last_offset,  position_offset};
}

Expr AttentionInputs::heads() const {
    return query.dim(2).extent();
}

Expr AttentionInputs::rows() const {
    return query.dim(1).extent() * query.dim(2).extent();
}

Expr AttentionInputs::key_dim() const {
    return key.dim(0).extent();
}

Expr AttentionInputs::value_dim() const {
    return value.dim(0).extent();
}

namespace {

Expr stored(const ImageParam &storage, const ImageParam &granules, Expr d, Expr granule, Expr slot) {
    Expr at = unsafe_promise_clamped(granules(std::move(granule)), storage.dim(2).min(), storage.dim(2).max());
    return storage(std::move(d), std::move(slot), at);
}

// Halide's own prefetch directive takes whole boxes of a buffer, which a look-up in a table makes boundless.
Expr prefetch(const ImageParam &storage, const ImageParam &granules, Expr d, const Expr &key) {
    using Internal::Call;
    Expr base = Internal::Variable::make(Handle(), storage.name(), storage.parameter());
    Expr offset = std::move(d) + key % kGranuleKeys * storage.dim(1).stride() +
                  granules(key / kGranuleKeys) * storage.dim(2).stride();
    return Call::make(Float(32), Call::prefetch, {base, offset, 1, kLineFloats}, Call::Intrinsic);
}

}  // namespace

Expr AttentionInputs::prefetch_key(Expr d, Expr key_index) const {
    return prefetch(key, key_granules, std::move(d), key_index);
}

Expr AttentionInputs::prefetch_value(Expr d, Expr key_index) const {
    return prefetch(value, value_granules, std::move(d), key_index);
}

Expr AttentionInputs::key_element(Expr d, Expr granule, Expr slot) const {
    return stored(key, key_granules, std::move(d), std::move(granule), std::move(slot));
}

Expr AttentionInputs::value_element(Expr d, Expr granule, Expr slot) const {
    return stored(value, value_granules, std::move(d), std::move(granule), std::move(slot));
}

}  // namespace hattn::generators
