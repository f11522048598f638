#include "kernel_inputs.h"

#include <limits>

#include "number_formats.h"
#include "runtime/device/unit_record.h"

namespace hattn::generators {

using namespace Halide;

void allow_any_stride(ImageParam &input) {
    input.dim(0).set_stride(Expr());
}

void allow_any_stride(Func &output) {
    output.output_buffer().dim(0).set_stride(Expr());
}

AttentionInputs::AttentionInputs(KeyStorage storage, int lanes)
    : storage(storage),
      query_type("query_type"),
      query_halves(UInt(16), 3, "query_halves"),
      row_layout("row_layout"),
      any_storage(takes_any_type(storage)),
      all_type(type_of_all(storage)),
      stored_key("key", lanes),
      stored_value("value", lanes),
      query(Float(32), 3, "query"),
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
      position_offset("position_offset"),
      next_query("next_query"),
      own_output("own_output"),
      output_stride("output_stride") {
    for (ImageParam *strided : {&bias, &mask, &alibi_slopes, &known_lse}) {
        allow_any_stride(*strided);
    }
}

AttentionInputs AttentionInputs::of_any_type() {
    AttentionInputs inputs(KeyStorage::kAny, 1);
    inputs.any_query = true;
    return inputs;
}

AttentionInputs AttentionInputs::of_any_float() {
    AttentionInputs inputs = of_any_type();
    inputs.any_float = true;
    return inputs;
}

AttentionInputs AttentionInputs::of_matrices(hattn_dtype type) {
    AttentionInputs inputs = of_any_type();
    inputs.matrix_type = type;
    inputs.any_storage = false;
    return inputs;
}

std::vector<Argument> AttentionInputs::arguments() const {
    std::vector<Argument> all = {query, key,          value,        key_granules, value_granules, bias,
                                 mask,  alibi_slopes, sinks,        known_lse,    key_count,      key_skip,
                                 scale, softcap,      first_offset, last_offset,  position_offset};
    if (!any_query) {
        all.insert(all.end(), {next_query, own_output, output_stride});
    }
    if (!reads_float32(storage)) {
        for (const StoredSide *side : {&stored_key, &stored_value}) {
            const std::vector<Argument> more = side->arguments();
            all.insert(all.end(), more.begin(), more.end());
        }
    }
    if (any_query) {
        all.insert(all.end(), {query_type, query_halves, row_layout});
    }
    return all;
}

Expr AttentionInputs::heads() const {
    return query.dim(2).extent();
}

Expr AttentionInputs::rows() const {
    return query.dim(1).extent() * query.dim(2).extent();
}

Expr AttentionInputs::key_dim() const {
    return elements(key);
}

Expr AttentionInputs::value_dim() const {
    return elements(value);
}

Expr AttentionInputs::elements(const ImageParam &side) const {
    Expr extent = side.dim(0).extent();
    if (has_one_head()) {
        return kWholeLines;
    }
    const int multiple = in_lines() ? kWholeLines : kWholeHead;
    return whole_heads() ? extent / multiple * multiple : extent;
}

IntegerSteps AttentionInputs::key_steps() const {
    return {all_type, stored_key.lanes, key_dim()};
}

IntegerSteps AttentionInputs::value_steps() const {
    return {all_type, stored_value.lanes, value_dim()};
}

IntegerPairs AttentionInputs::key_pairs() const {
    return {all_type, stored_key.lanes, key_dim()};
}

IntegerPairs AttentionInputs::value_pairs() const {
    return {all_type, stored_value.lanes, value_dim(), word_pairs};
}

IntegerBytes AttentionInputs::key_signed_bytes() const {
    return {all_type, stored_key.lanes, key_dim()};
}

IntegerBytes AttentionInputs::value_signed_bytes() const {
    return {all_type, stored_value.lanes, value_dim()};
}

IntegerDigits AttentionInputs::key_digits() const {
    return {all_type, stored_key.lanes, key_dim()};
}

IntegerDigits AttentionInputs::value_digits() const {
    return {all_type, stored_value.lanes, value_dim()};
}

Expr AttentionInputs::key_bits(const Expr &d, const Expr &granule, const Expr &slot) const {
    return granule_element(stored_key.halves, key_granules, d, granule, slot);
}

Expr AttentionInputs::value_bits(const Expr &d, const Expr &granule, const Expr &slot) const {
    return granule_element(stored_value.halves, value_granules, d, granule, slot);
}

Expr AttentionInputs::key_byte(Expr at, Expr granule, Expr slot) const {
    return granule_element(stored_key.bytes, key_granules, std::move(at), std::move(granule), std::move(slot));
}

Expr AttentionInputs::value_byte(Expr at, Expr granule, Expr slot) const {
    return granule_element(stored_value.bytes, value_granules, std::move(at), std::move(granule), std::move(slot));
}

namespace {

// Elements as they are: float32, or bfloat16 where kernels multiply that.
const ImageParam &plain_storage(KeyStorage storage, const ImageParam &floats, const StoredSide &side) {
    return multiplies_stored(storage) ? side.halves : floats;
}

// In elements of the storage. Counted in bytes, offsets may be beyond what the indices of elements have to be within.
Expr row_start(const ImageParam &storage, const ImageParam &granules, const Expr &granule, const Expr &slot) {
    const auto wide = [&](const Expr &value) { return storage.type().bytes() == 1 ? cast<int64_t>(value) : value; };
    return wide(slot) * storage.dim(1).stride() + wide(granules(granule)) * storage.dim(2).stride();
}

Expr row_start(const ImageParam &storage, const ImageParam &granules, const Expr &key) {
    return row_start(storage, granules, key / kGranuleKeys, key % kGranuleKeys);
}

Expr row_element(KeyStorage storage, const ImageParam &floats, const StoredSide &side, const Expr &start,
                 const Expr &d) {
    const ImageParam &plain = plain_storage(storage, floats, side);
    Expr last = plain.dim(2).max() * plain.dim(2).stride();
    Expr element = plain(unsafe_promise_clamped(start, 0, last) + d, plain.dim(1).min(), plain.dim(2).min());
    return multiplies_stored(storage) ? reinterpret(BFloat(16), element) : element;
}

Expr line_of_slot(const ImageParam &storage, const Expr &slot, const Expr &line) {
    return slot * storage.dim(1).stride() + line * line_elements(storage);
}

Expr line_of_rows(const ImageParam &storage, const Expr &line, const Expr &lines, int rows) {
    // One division in all. Of heads of more than 5792 elements some lines are others.
    constexpr int kFraction = 20;
    Expr reciprocal = ((1 << kFraction) + lines - 1) / lines;
    Expr within = min(line, rows * lines - 1);
    Expr slot = (within * reciprocal) >> kFraction;
    return line_of_slot(storage, slot, within - slot * lines);
}

Expr prefetch(const ImageParam &storage, const Expr &start, const Expr &line) {
    return prefetch_line(storage, start + cast(start.type(), line));
}

Expr lines_of(const ImageParam &storage, const Expr &elements) {
    return (elements + (line_elements(storage) - 1)) / line_elements(storage);
}

}  // namespace

// Rows of other types are asked for as bytes.
const ImageParam &AttentionInputs::asked_keys() const {
    return in_bytes() ? stored_key.bytes : plain_storage(storage, key, stored_key);
}

const ImageParam &AttentionInputs::asked_values() const {
    return in_bytes() ? stored_value.bytes : plain_storage(storage, value, stored_value);
}

Expr AttentionInputs::key_lines() const {
    return in_bytes() ? Expr(stored_key.lines) : lines_of(asked_keys(), key_dim());
}

Expr AttentionInputs::value_lines() const {
    return in_bytes() ? Expr(stored_value.lines) : lines_of(asked_values(), value_dim());
}

Expr AttentionInputs::dense_rows() const {
    return asked_keys().dim(1).stride() == key_lines() * line_elements(asked_keys()) &&
           asked_values().dim(1).stride() == value_lines() * line_elements(asked_values());
}

Expr AttentionInputs::key_start(const Expr &key_index) const {
    return row_start(asked_keys(), key_granules, key_index);
}

Expr AttentionInputs::key_start(const Expr &granule, const Expr &slot) const {
    return row_start(asked_keys(), key_granules, granule, slot);
}

Expr AttentionInputs::value_start(const Expr &key_index) const {
    return row_start(asked_values(), value_granules, key_index);
}

Expr AttentionInputs::key_line(const Expr &line, int rows) const {
    return line_of_rows(asked_keys(), line, key_lines(), rows);
}

Expr AttentionInputs::key_line_of_slot(const Expr &slot, const Expr &line) const {
    return line_of_slot(asked_keys(), slot, line);
}

Expr AttentionInputs::value_line(const Expr &line, int rows) const {
    return line_of_rows(asked_values(), line, value_lines(), rows);
}

Expr AttentionInputs::value_line_of_slot(const Expr &slot, const Expr &line) const {
    return line_of_slot(asked_values(), slot, line);
}

Expr AttentionInputs::prefetch_key(const Expr &start, const Expr &line) const {
    return prefetch(asked_keys(), start, line);
}

Expr AttentionInputs::prefetch_value(const Expr &start, const Expr &line) const {
    return prefetch(asked_values(), start, line);
}

Expr AttentionInputs::scales_start(const StoredSide &side, const Expr &key_index) const {
    return row_start(side.block_scales, side.scale_granules, key_index);
}

Expr AttentionInputs::prefetch_scales(const StoredSide &side, const Expr &start, const Expr &slot) const {
    return prefetch(side.block_scales, start, line_of_slot(side.block_scales, slot, 0));
}

Expr AttentionInputs::prefetch_query(const Expr &start, const Expr &line) const {
    return prefetch(query, start, line * line_elements(query));
}

Expr AttentionInputs::query_element(Expr d, Expr i, Expr h) const {
    if (!any_query) {
        return query(std::move(d), std::move(i), std::move(h));
    }
    Expr bits = query_halves(d, i, h);
    if (matrix_type != HATTN_FLOAT32) {
        return bits;
    }
    return typed_value(query_type, query(d, i, h), bits);
}

Expr AttentionInputs::query_start(const Expr &i, const Expr &h) const {
    const auto behind_first = [](const Expr &index, Halide::Internal::Dimension dim) {
        return (index - dim.min()) * dim.stride();
    };
    return behind_first(i, query.dim(1)) + behind_first(h, query.dim(2));
}

Expr AttentionInputs::query_from(const Expr &start, const Expr &d) const {
    Expr last = query.dim(1).extent() * query.dim(1).stride() + query.dim(2).extent() * query.dim(2).stride();
    return query(unsafe_promise_clamped(start, 0, last) + d, query.dim(1).min(), query.dim(2).min());
}

namespace {

Expr element(KeyStorage storage, const ImageParam &floats, const StoredSide &stored, const ImageParam &granules,
             const Expr &d, const Expr &granule, const Expr &slot) {
    switch (storage) {
    case KeyStorage::kAny:
    case KeyStorage::kAnyMatrices:
    case KeyStorage::kHalvesMatrices:
        return stored.element(floats, granules, d, granule, slot);
    case KeyStorage::kAllFloat16:
    case KeyStorage::kAllBfloat16:
        return stored.element_of(type_of_all(storage), floats, granules, d, granule, slot);
    case KeyStorage::kBfloat16:
    case KeyStorage::kBfloat16Rows:
    case KeyStorage::kBfloat16Matrices:
        return reinterpret(BFloat(16), granule_element(stored.halves, granules, d, granule, slot));
    default:
        return granule_element(floats, granules, d, granule, slot);
    }
}

// Of rows side by side it takes one multiplication to find one.
Expr element_of_layout(const Expr &layout, const ImageParam &storage, const ImageParam &granules, const Expr &d,
                       const Expr &granule, const Expr &slot, const Expr &key) {
    Expr scattered = unsafe_promise_clamped(granules(granule), storage.dim(2).min(), storage.dim(2).max());
    Expr side_by_side = layout == kRowsSideBySide;
    return storage(d, select(side_by_side, key, slot), select(side_by_side, 0, scattered));
}

}  // namespace

Expr AttentionInputs::key_element(Expr d, Expr granule, Expr slot) const {
    if (matrix_type != HATTN_FLOAT32) {
        return element_of_layout(row_layout, stored_key.halves, key_granules, d, granule, slot,
                                 granule * kGranuleKeys + slot);
    }
    return element(storage, key, stored_key, key_granules, d, granule, slot);
}

namespace {

Expr bounded(const Expr &granule) {
    constexpr int kMost = std::numeric_limits<int>::max() - 1;
    return clamp(granule, -kMost, kMost);
}

}  // namespace

// Halide 21.0.0 takes promises for calls with side effects once it has simplified them, and such loops for scalar ones.
// A granule has to be bounded by something; no number is cut off.
Expr AttentionInputs::bfloat16_key(const Expr &d, const Expr &granule, const Expr &slot) const {
    return reinterpret(BFloat(16), stored_key.halves(d, slot, bounded(key_granules(granule))));
}

Expr AttentionInputs::key_byte_in(const Expr &granule, const Expr &at, const Expr &slot) const {
    return stored_key.bytes(at, slot, bounded(granule));
}

Expr AttentionInputs::value_half(const Expr &d, const Expr &granule, const Expr &slot, const Expr &key) const {
    return element_of_layout(row_layout, stored_value.halves, value_granules, d, granule, slot, key);
}

Expr AttentionInputs::float_element(const StoredSide &side, const ImageParam &floats, const ImageParam &granules,
                                    const Expr &d, const Expr &granule, const Expr &slot, const Expr &key) const {
    const auto of = [&](const ImageParam &view) {
        return element_of_layout(row_layout, view, granules, d, granule, slot, key);
    };
    return typed_value(side.type, of(floats), of(side.halves));
}

Expr AttentionInputs::key_float(const Expr &d, const Expr &granule, const Expr &slot, const Expr &key) const {
    return float_element(stored_key, this->key, key_granules, d, granule, slot, key);
}

Expr AttentionInputs::value_float(const Expr &d, const Expr &granule, const Expr &slot, const Expr &key) const {
    return float_element(stored_value, value, value_granules, d, granule, slot, key);
}

Expr AttentionInputs::value_element(Expr d, Expr granule, Expr slot) const {
    return element(storage, value, stored_value, value_granules, d, granule, slot);
}

Expr AttentionInputs::key_from(const Expr &start, const Expr &d) const {
    return row_element(storage, key, stored_key, start, d);
}

Expr AttentionInputs::value_from(const Expr &start, const Expr &d) const {
    return row_element(storage, value, stored_value, start, d);
}

Expr AttentionInputs::in_blocks(const StoredSide &side, const ImageParam &floats, const ImageParam &granules,
                                const Expr &d, const Expr &granule, const Expr &slot, const Expr &key,
                                const Expr &element) const {
    Expr block = min(d / kAlignedFloats * kAlignedFloats, floats.dim(0).extent() - kAlignedFloats);
    Expr of_block = element_of_layout(row_layout, floats, granules, block + d % kAlignedFloats, granule, slot, key);
    return select(side.type == static_cast<int>(HATTN_FLOAT32) && row_layout >= kRowsAligned, of_block, element);
}

}  // namespace hattn::generators
