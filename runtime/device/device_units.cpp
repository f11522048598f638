#include "device_units.h"

#include <algorithm>
#include <limits>

#include "paired_units.h"
#include "runtime/checked.h"

namespace hattn {

namespace {

// Rows of one sequence: what all of its units have in common.
class SequenceUnits {
public:
    SequenceUnits(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args,
                  const hattn_tensor &lse, const DeviceTensors &tensors, int64_t batch, DeviceUnits *units)
        : problem_(problem),
          plan_(plan),
          args_(args),
          lse_(lse),
          tensors_(tensors),
          key_step_(tensors.key.granule_step()),
          value_step_(tensors.value.granule_step()),
          batch_(batch),
          sequence_(problem, args, batch),
          units_(*units) {}

    void add() {
        // Units start in this order. Under a causal mask later rows see more keys: the longest come first, lest a few
        // of them are left when all others are done.
        const int64_t rows = plan_.attention->tile.rows / plan_.heads;
        for (int64_t tile = ceil_div(sequence_.query_length, rows); tile-- > 0;) {
            add_tiles(tile * rows, std::min(rows, sequence_.query_length - tile * rows));
        }
        // Rows past the length see no key and have no sink.
        for (int64_t head = 0; head < problem_.query_heads; ++head) {
            for (int64_t row = sequence_.query_length; row < sequence_.queries.count; row += rows) {
                add_empty(head, row, std::min(rows, sequence_.queries.count - row));
            }
        }
    }

    // Of every row and key that the output has; in tiles without a row or a key of the sequence no score is computed.
    void add_scores(const DeviceMemory &scores) {
        const DeviceTile &tile = plan_.scores->tile;
        const int64_t counts[] = {0, sequence_.query_length, sequence_.queries.count};
        for (int64_t head = 0; head < problem_.query_heads; ++head) {
            for (const bool past_length : {false, true}) {
                const int64_t end = counts[past_length ? 2 : 1];
                for (int64_t row = counts[past_length ? 1 : 0]; row < end; row += tile.rows) {
                    const int64_t rows = std::min<int64_t>(tile.rows, end - row);
                    for (int64_t key = 0; key < args_.scores.extent[3]; key += tile.keys) {
                        const int64_t last = past_length ? 0 : std::min(key + tile.keys, sequence_.kv_length);
                        add_score_tile(scores, head, row, rows, {key, last});
                    }
                }
            }
        }
    }

private:
    // Of all heads.
    void add_tiles(int64_t row, int64_t rows) {
        for (int64_t kv_head = 0; kv_head < problem_.kv_heads; ++kv_head) {
            const int64_t first = kv_head * problem_.group_size(), end = first + problem_.group_size();
            for (int64_t head = first; head < end; head += plan_.heads) {
                add_tile(head, std::min(plan_.heads, end - head), row, rows);
            }
        }
    }

    void add_score_tile(const DeviceMemory &scores, int64_t head, int64_t row, int64_t rows, const KeyRange &keys) {
        ScoreRecord unit = {};
        if (keys.empty()) {
            // One key, which no row sees.
            unit.tile.rows = unit.tile.tile_rows = narrow(rows);
            unit.tile.heads = unit.tile.key_count = 1;
            unit.tile.first_offset = static_cast<int32_t>(kMaxExtent);
            unit.tile.alibi_slopes = narrow(head);
            unit.tile.bias = operand_offset<float>(tensors_.bias, args_.bias, head, row, 0);
            unit.tile.mask = operand_offset<uint8_t>(tensors_.mask, args_.mask, head, row, 0);
        } else {
            unit.tile = unit_of(head, 1, row, rows, keys);
            unit.key_dim = narrow(problem_.key_dim);
        }
        if (!keys.empty() && (problem_.scores == HATTN_SCORES_RAW || problem_.scores == HATTN_SCORES_CAPPED)) {
            unit.tile.first_offset = static_cast<int32_t>(-2 * kMaxExtent);
            unit.tile.last_offset = static_cast<int32_t>(2 * kMaxExtent - 1);
        }
        unit.keys = narrow(std::min<int64_t>(plan_.scores->tile.keys, args_.scores.extent[3] - keys.begin));
        unit.tile.output = narrow(scores.offset(args_.scores, batch_, head, row) + keys.begin);
        unit.tile.lse = lse_offset(head, row);
        units_.scores.push_back(unit);
    }

    void add_tile(int64_t head, int64_t heads, int64_t row, int64_t rows) {
        const KeyRange keys = sequence_.visible(row, rows);
        if (plan_.split_keys == 0) {
            UnitRecord unit = unit_of(head, heads, row, rows, keys);
            unit.output = output_offset(head, row);
            unit.lse = lse_offset(head, row);
            unit.sinks = sink_index(head);
            units_.attention.push_back(unit);
            return;
        }
        const int64_t tile_rows = plan_.attention->tile.rows;
        const int64_t states = ceil_div(keys.size(), plan_.split_keys);
        const int64_t first_row = units_.state_rows;
        units_.state_rows += states * tile_rows;
        units_.attention_order.inner = narrow(std::max<int64_t>(states, 1));
        units_.merge_order.inner = narrow(rows * heads);
        narrow(units_.state_rows * problem_.value_dim);
        UnitRecord first = unit_of(head, heads, row, rows, keys);
        first.output = narrow(first_row * problem_.value_dim);
        first.lse = narrow(first_row);
        first.sinks = kNoSinks;
        for (int64_t split = 0; split < states; ++split) {
            UnitRecord &unit = units_.attention.emplace_back(first);
            const int64_t key = split * plan_.split_keys;
            unit.key_count = narrow(std::min(plan_.split_keys, keys.size() - key));
            move_keys(unit, key);
            set_limits(unit, row, keys.begin + key);
            add(unit.output, split * tile_rows * problem_.value_dim);
            add(unit.lse, split * tile_rows);
        }
        for (int64_t r = 0; r < rows * heads; ++r) {
            add_merge(head + r % heads, row + r / heads, first_row + r, states, sink_index(head + r % heads));
        }
    }

    void add_empty(int64_t head, int64_t row, int64_t rows) {
        if (plan_.split_keys > 0) {
            for (int64_t i = row; i < row + rows; ++i) {
                add_merge(head, i, 0, 0, kNoSinks);
            }
            return;
        }
        UnitRecord unit = {};
        unit.rows = unit.tile_rows = narrow(rows);
        unit.heads = 1;
        unit.output = output_offset(head, row);
        unit.lse = lse_offset(head, row);
        unit.sinks = kNoSinks;
        units_.attention.push_back(unit);
    }

    void add_merge(int64_t head, int64_t row, int64_t state_row, int64_t states, int32_t sink) {
        units_.merges.push_back({narrow(state_row * problem_.value_dim), narrow(state_row), sink,
                                 output_offset(head, row), lse_offset(head, row), narrow(states)});
    }

    UnitRecord unit_of(int64_t head, int64_t heads, int64_t row, int64_t rows, const KeyRange &keys) const {
        UnitRecord unit = {};
        unit.query = row_offset(tensors_.query, args_.q, head, row);
        unit.rows = narrow(rows);
        unit.heads = narrow(heads);
        unit.tile_rows = narrow(rows * heads);
        unit.alibi_slopes = narrow(head);
        unit.key_count = narrow(keys.size());
        if (keys.empty()) {
            return unit;
        }
        const int64_t kv_head = head / problem_.group_size();
        const DeviceSide::Offsets key = tensors_.key.offsets(sequence_, batch_, kv_head, keys.begin);
        unit.key = narrow(key.rows);
        unit.key_granules = narrow(key.granules);
        unit.key_channel_scales = narrow(key.channel_scales);
        unit.key_block_scales = narrow(key.block_scales);
        const DeviceSide::Offsets value = tensors_.value.offsets(sequence_, batch_, kv_head, keys.begin);
        unit.value = narrow(value.rows);
        unit.value_granules = narrow(value.granules);
        unit.value_channel_scales = narrow(value.channel_scales);
        unit.value_block_scales = narrow(value.block_scales);
        unit.bias = operand_offset<float>(tensors_.bias, args_.bias, head, row, keys.begin);
        unit.mask = operand_offset<uint8_t>(tensors_.mask, args_.mask, head, row, keys.begin);
        set_limits(unit, row, keys.begin);
        return unit;
    }

    void set_limits(UnitRecord &unit, int64_t row, int64_t first_key) const {
        const TileLimits limits = sequence_.limits(row, first_key);
        unit.first_offset = limits.first_offset;
        unit.last_offset = limits.last_offset;
        unit.position_offset = limits.position_offset;
        unit.key_skip = limits.key_skip;
    }

    // Of a tile, whole granules of keys further on: but for these, its splits, of which decode has many, are alike.
    void move_keys(UnitRecord &unit, int64_t keys) const {
        const int64_t granules = keys / kGranuleKeys;
        add(unit.key, granules * key_step_.rows);
        add(unit.key_granules, granules * key_step_.granules);
        add(unit.key_block_scales, granules * key_step_.block_scales);
        add(unit.value, granules * value_step_.rows);
        add(unit.value_granules, granules * value_step_.granules);
        add(unit.value_block_scales, granules * value_step_.block_scales);
        add(unit.bias, args_.bias.data ? keys * used_stride(args_.bias, 3) : 0);
        add(unit.mask, args_.mask.data ? keys * used_stride(args_.mask, 3) : 0);
    }

    static void add(int32_t &offset, int64_t by) {
        offset = static_cast<int32_t>(offset + by);
    }

    template<typename T>
    int32_t operand_offset(const DeviceMemory &memory, const hattn_tensor &tensor, int64_t head, int64_t row,
                           int64_t key) const {
        if (!tensor.data) {
            return 0;
        }
        const int64_t at[4] = {batch_, head, sequence_.queries.first + row, key};
        const T *element = static_cast<const T *>(tensor.data);
        for (int d = 0; d < 4; ++d) {
            element += at[d] * used_stride(tensor, d);
        }
        return narrow(memory.byte_offset(element) / static_cast<int64_t>(sizeof(T)));
    }

    // Of queries or outputs.
    int32_t row_offset(const DeviceMemory &memory, const hattn_tensor &tensor, int64_t head, int64_t row) const {
        const StoredRows &rows = sequence_.queries;
        const void *first = address(tensor, rows.batch, head, rows.first + row);
        return narrow(memory.byte_offset(first) * 8 / dtype_bits(tensor.dtype));
    }

    int32_t output_offset(int64_t head, int64_t row) const {
        return row_offset(tensors_.output, args_.out, head, row);
    }
    int32_t lse_offset(int64_t head, int64_t row) const {
        return narrow(tensors_.lse.offset(lse_, sequence_.queries.batch, head, sequence_.queries.first + row));
    }
    int32_t sink_index(int64_t head) const {
        return args_.sinks ? narrow(head) : kNoSinks;
    }
    static int32_t narrow(int64_t value) {
        require(value <= std::numeric_limits<int32_t>::max(), HATTN_NOT_SUPPORTED, "partial states: there are ", value,
                ", but device kernels count up to 2^31 - 1");
        return static_cast<int32_t>(value);
    }

    const Problem &problem_;
    const DevicePlan &plan_;
    const hattn_attention_args &args_;
    const hattn_tensor &lse_;
    const DeviceTensors &tensors_;
    const DeviceSide::Offsets key_step_, value_step_;
    const int64_t batch_;
    const Sequence sequence_;
    DeviceUnits &units_;
};

// The most that two units have to do which share a compute unit: of a launch with no more than two for each.
int64_t keys_of_two(const DeviceUnits &units, const UnitOrder &order, int64_t compute_units) {
    const auto keys = [&](int64_t start) -> int64_t { return units.attention[unit_at(order, start)].key_count; };
    int64_t most = 0;
    for (int64_t start = 0; start < compute_units; ++start) {
        const int64_t second = start + compute_units;
        const bool shares = second < static_cast<int64_t>(units.attention.size());
        most = std::max(most, keys(start) + (shares ? keys(second) : 0));
    }
    return most;
}

}  // namespace

DeviceUnits make_device_units(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args,
                              const hattn_tensor &lse, const DeviceTensors &tensors, const DeviceMemory *scores,
                              std::pmr::memory_resource *memory) {
    DeviceUnits units{std::pmr::vector<UnitRecord>(memory), std::pmr::vector<MergeRecord>(memory),
                      std::pmr::vector<ScoreRecord>(memory)};
    units.attention.reserve(plan.workspace.attention_units);
    units.merges.reserve(plan.workspace.merge_units);
    units.scores.reserve(plan.workspace.score_units);
    for (int64_t b = 0; b < problem.batch; ++b) {
        SequenceUnits sequence(problem, plan, args, lse, tensors, b, &units);
        sequence.add();
        if (scores) {
            sequence.add_scores(*scores);
        }
    }
    // Splits of tiles, or tiles of a kv head, for all kv heads.
    const int64_t tiles = ceil_div(problem.group_size(), plan.heads), all = problem.kv_heads * tiles;
    const size_t count = units.attention.size();
    units.attention_order = !columns_grow(*plan.attention) ? UnitOrder::of(count)
                            : plan.split_keys > 0          ? UnitOrder::of(count, units.attention_order.inner, all)
                                                           : UnitOrder::of(count, tiles, problem.kv_heads);
    if (plan.split_keys == 0) {
        const UnitOrder pairs = in_pairs(units.attention_order, plan.paired_units);
        const auto most_keys = [&](const UnitOrder &order) { return keys_of_two(units, order, plan.paired_units); };
        if (pairs.turned > 0 && most_keys(pairs) < most_keys(units.attention_order)) {
            units.attention_order = pairs;
        }
    }
    units.merge_order = UnitOrder::of(units.merges.size(), units.merge_order.inner, all);
    return units;
}

}  // namespace hattn
