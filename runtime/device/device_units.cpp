#include "device_units.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/checked.h"
#include "runtime/key_storage.h"

namespace hattn {

namespace {

// Where the table of a sequence starts: all keys of a ring that can be seen lie behind its first one.
int64_t first_granule(const Problem &problem, const Sequence &sequence) {
    return problem.ring ? sequence.first_key(0) / kGranuleKeys : 0;
}

// Rows of one sequence: what all of its units have in common.
class SequenceUnits {
public:
    SequenceUnits(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args,
                  const hattn_tensor &lse, const DeviceTensors &tensors, const GranuleTables &tables, int64_t batch,
                  DeviceUnits *units)
        : problem_(problem),
          plan_(plan),
          args_(args),
          lse_(lse),
          tensors_(tensors),
          tables_(tables),
          batch_(batch),
          sequence_(problem, args, batch),
          units_(*units) {}

    void add() {
        const int64_t rows = plan_.attention->tile.rows / plan_.heads;
        for (int64_t kv_head = 0; kv_head < problem_.kv_heads; ++kv_head) {
            const int64_t first = kv_head * problem_.group_size(), end = first + problem_.group_size();
            for (int64_t head = first; head < end; head += plan_.heads) {
                for (int64_t row = 0; row < sequence_.query_length; row += rows) {
                    add_tile(head, std::min(plan_.heads, end - head), row,
                             std::min(rows, sequence_.query_length - row));
                }
            }
        }
        // Rows past the length see no key and have no sink.
        for (int64_t head = 0; head < problem_.query_heads; ++head) {
            for (int64_t row = sequence_.query_length; row < sequence_.queries.count; row += rows) {
                add_empty(head, row, std::min(rows, sequence_.queries.count - row));
            }
        }
    }

private:
    void add_tile(int64_t head, int64_t heads, int64_t row, int64_t rows) {
        const KeyRange keys = sequence_.visible(row, rows);
        if (plan_.algorithm != HATTN_ALGORITHM_SPLIT_KV) {
            UnitRecord unit = unit_of(head, heads, row, rows, keys);
            unit.output = output_offset(head, row);
            unit.lse = lse_offset(head, row);
            unit.sinks = sink_index(head);
            units_.attention.push_back(unit);
            return;
        }
        const int64_t tile_rows = plan_.attention->tile.rows;
        const int64_t states = ceil_div(keys.size(), kDeviceSplitKeys);
        const int64_t first_row = units_.state_rows;
        for (int64_t split = 0; split < states; ++split) {
            const int64_t begin = keys.begin + split * kDeviceSplitKeys;
            UnitRecord unit = unit_of(head, heads, row, rows, {begin, std::min(begin + kDeviceSplitKeys, keys.end)});
            unit.output = narrow((first_row + split * tile_rows) * problem_.value_dim);
            unit.lse = narrow(first_row + split * tile_rows);
            unit.sinks = no_sinks(problem_);
            units_.attention.push_back(unit);
        }
        units_.state_rows += states * tile_rows;
        for (int64_t r = 0; r < rows * heads; ++r) {
            add_merge(head + r % heads, row + r / heads, first_row + r, states, sink_index(head + r % heads));
        }
    }

    void add_empty(int64_t head, int64_t row, int64_t rows) {
        if (plan_.algorithm == HATTN_ALGORITHM_SPLIT_KV) {
            for (int64_t i = row; i < row + rows; ++i) {
                add_merge(head, i, 0, 0, no_sinks(problem_));
            }
            return;
        }
        UnitRecord unit = {};
        unit.rows = unit.tile_rows = narrow(rows);
        unit.heads = 1;
        unit.output = output_offset(head, row);
        unit.lse = lse_offset(head, row);
        unit.sinks = no_sinks(problem_);
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
        unit.key = element_offset<float>(tensors_.key, first_key(args_.k, kv_head, keys));
        unit.value = element_offset<float>(tensors_.value, first_key(args_.v, kv_head, keys));
        if (tables_.per_sequence > 0) {
            const int64_t granule = keys.begin / kGranuleKeys - first_granule(problem_, sequence_);
            unit.key_granules = unit.value_granules = narrow(batch_ * tables_.per_sequence + granule);
        }
        unit.bias = operand_offset<float>(tensors_.bias, args_.bias, head, row, keys.begin);
        unit.mask = operand_offset<uint8_t>(tensors_.mask, args_.mask, head, row, keys.begin);
        const TileLimits limits = sequence_.limits(row, keys.begin);
        unit.first_offset = limits.first_offset;
        unit.last_offset = limits.last_offset;
        unit.position_offset = limits.position_offset;
        unit.key_skip = limits.key_skip;
        return unit;
    }

    // What entries of the granule table count from. (Of memory without addresses, its handle stands for one.)
    const void *first_key(const hattn_tensor &side, int64_t kv_head, const KeyRange &keys) const {
        return locate_granules(problem_, args_, side, batch_, kv_head, {keys.begin / kGranuleKeys, 0}, nullptr).base;
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
        return element_offset<T>(memory, element);
    }

    template<typename T>
    static int32_t element_offset(const DeviceMemory &memory, const void *element) {
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
        return narrow(head);
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
    const GranuleTables &tables_;
    const int64_t batch_;
    const Sequence sequence_;
    DeviceUnits &units_;
};

}  // namespace

GranuleTables make_granule_tables(const Problem &problem, const hattn_attention_args &args,
                                  std::pmr::memory_resource *memory) {
    GranuleTables tables{std::pmr::vector<int32_t>(memory), std::pmr::vector<int32_t>(memory)};
    const auto range_of = [&](int64_t b) {
        const Sequence sequence(problem, args, b);
        const int64_t first = first_granule(problem, sequence);
        // What a ring holds; where it holds less than the rows might see, they see nothing.
        return GranuleRange{first,
                            std::min(ceil_div(sequence.kv_length, kGranuleKeys) - first, most_granules(problem))};
    };
    int64_t longest = 0;
    for (int64_t b = 0; b < problem.batch; ++b) {
        longest = std::max(longest, range_of(b).count);
    }
    if (!problem.scattered()) {
        tables.key.resize(longest);
        std::iota(tables.key.begin(), tables.key.end(), 0);
        tables.value = tables.key;
        return tables;
    }
    tables.per_sequence = longest;
    tables.key.resize(problem.batch * longest);
    tables.value.resize(problem.batch * longest);
    for (int64_t b = 0; b < problem.batch; ++b) {
        locate_granules(problem, args, args.k, b, 0, range_of(b), tables.key.data() + b * longest);
        locate_granules(problem, args, args.v, b, 0, range_of(b), tables.value.data() + b * longest);
    }
    return tables;
}

DeviceUnits make_device_units(const Problem &problem, const DevicePlan &plan, const hattn_attention_args &args,
                              const hattn_tensor &lse, const DeviceTensors &tensors, const GranuleTables &tables,
                              std::pmr::memory_resource *memory) {
    DeviceUnits units{std::pmr::vector<UnitRecord>(memory), std::pmr::vector<MergeRecord>(memory)};
    units.attention.reserve(plan.workspace.attention_units);
    units.merges.reserve(plan.workspace.merge_units);
    for (int64_t b = 0; b < problem.batch; ++b) {
        SequenceUnits(problem, plan, args, lse, tensors, tables, b, &units).add();
    }
    return units;
}

}  // namespace hattn
