#include "kernel_inputs.h"

namespace hattn::generators {

using namespace Halide;

void allow_any_stride(ImageParam &input) {
    input.dim(0).set_stride(Expr());
}

void allow_any_stride(Func &output) {
    output.output_buffer().dim(0).set_stride(Expr());
}

AttentionInputs::AttentionInputs()
    : query(Float(32), 3, "query"),
      key(Float(32), 2, "key"),
      value(Float(32), 2, "value"),
      bias(Float(32), 3, "bias"),
      mask(UInt(8), 3, "mask"),
      alibi_slopes(Float(32), 1, "alibi_slopes"),
      sinks(Float(32), 1, "sinks"),
      known_lse(Float(32), 1, "known_lse"),
      scale("scale"),
      softcap("softcap"),
      first_offset("first_offset"),
      last_offset("last_offset"),
      position_offset("position_offset") {
    for (ImageParam *strided : {&bias, &mask, &known_lse}) {
        allow_any_stride(*strided);
    }
}

std::vector<Argument> AttentionInputs::arguments() const {
    return {query,     key,   value,   bias,         mask,        alibi_slopes,   sinks,
            known_lse, scale, softcap, first_offset, last_offset, position_offset};
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

Expr AttentionInputs::first_key() const {
    return key.dim(1).min();
}

Expr AttentionInputs::key_count() const {
    return key.dim(1).extent();
}

}  // namespace hattn::generators
