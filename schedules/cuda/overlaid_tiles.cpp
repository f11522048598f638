#include "overlaid_tiles.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "chunk_loop.h"
#include "shared_stages.h"
#include "warpgroup_layout.h"

namespace hattn::schedules::cuda {

using namespace Halide;
using namespace Halide::Internal;

namespace {

class Stages : public IRVisitor {
public:
    std::set<std::string> found;

private:
    using IRVisitor::visit;

    void visit(const ProducerConsumer *stage) override {
        found.insert(stage->name);
        IRVisitor::visit(stage);
    }
};

int64_t tile_bytes(const Tiles &tiles, const std::string &stage) {
    return int64_t{tiles.rows.at(stage)} * tiles.row_bytes;
}

class Relocate : public SharedAccesses {
public:
    // first: where stages begin that move.
    Relocate(const std::string &array, const StageRanges &all, const std::map<std::string, int64_t> &first,
             const Tiles &tiles, const std::string &loop)
        : SharedAccesses(array, ""), all_(all), first_(first), tiles_(tiles), chunk_(Variable::make(Int(32), loop)) {
        inside_ = true;
    }

private:
    using SharedAccesses::visit;

    Expr moved(const Expr &index, Type type, const std::string &stage) const {
        const auto first = first_.find(stage);
        if (first == first_.end()) {
            return index;
        }
        const auto elements = [&](int64_t bytes) { return static_cast<int>(bytes / type.bytes()); };
        const Expr moved = index + elements(first->second - all_.at(stage).first);
        const bool in_turns = tiles_.buffers > 1 && (stage == tiles_.next || stage == tiles_.now);
        return in_turns ? moved + chunk_ % tiles_.buffers * elements(tile_bytes(tiles_, stage)) : moved;
    }

    Stmt visit(const Store *store) override {
        const ProducerConsumer *stage = store->name == array_ ? producer() : nullptr;
        if (!stage) {
            return SharedAccesses::visit(store);
        }
        return Store::make(store->name, mutate(store->value), moved(store->index, store->value.type(), stage->name),
                           store->param, mutate(store->predicate), store->alignment);
    }

    Expr visit(const Load *load) override {
        if (load->name != array_) {
            return SharedAccesses::visit(load);
        }
        // By where it begins: loops over heads of any size have no last element.
        const auto least = as_const_int(simplify(bounds_of_expr_in_scope(load->index, bounds_).min));
        const int64_t byte = least.value_or(-1) * load->type.bytes();
        std::set<std::string> read;
        for (const ProducerConsumer *stage : stages_) {
            if (const auto found = all_.find(stage->name);
                found != all_.end() && found->second.contains({byte, byte + 1})) {
                read.insert(stage->name);
            }
        }
        if (read.size() != 1) {
            std::ostringstream text;
            text << "shared memory is that of several stages: " << load->index;
            throw std::runtime_error(text.str());
        }
        if (producer() && producer()->name == tiles_.stored.stage && *read.begin() == tiles_.first) {
            return make_zero(load->type);
        }
        return Load::make(load->type, load->name, moved(load->index, load->type, *read.begin()), load->image,
                          load->param, mutate(load->predicate), load->alignment);
    }

    const StageRanges &all_;
    const std::map<std::string, int64_t> &first_;
    const Tiles &tiles_;
    const Expr chunk_;
};

int64_t aligned(int64_t bytes) {
    return (bytes + kSwizzledAlignment - 1) / kSwizzledAlignment * kSwizzledAlignment;
}

}  // namespace

Stmt OverlaidTiles::visit(const Allocate *allocation) {
    if (allocation->memory_type != MemoryType::GPUShared || !tiles_.warpgroups) {
        return IRMutator::visit(allocation);
    }
    Stages stages;
    allocation->body.accept(&stages);
    const StageRanges all = ranges_of_stages(allocation->body, allocation->name, "", stages.found);
    LoopOf search(tiles_.next);
    allocation->body.accept(&search);
    if (!search.found) {
        throw std::runtime_error("there is no loop over chunks: " + tiles_.next);
    }
    std::map<std::string, int64_t> first;
    int64_t end = 0;
    for (const std::string &tile : {tiles_.next, tiles_.now, tiles_.first}) {
        first[tile] = end;
        const int buffers = tile == tiles_.first ? 1 : tiles_.buffers;
        end = aligned(end + buffers * aligned(tile_bytes(tiles_, tile)));
    }
    if (all.at(tiles_.next).first != 0) {
        throw std::runtime_error("the keys are not the first in shared memory");
    }
    // Behind the keys, whose memory others have too when they are gone.
    const std::string &output = tiles_.stored.stage;
    first[output] = first.at(tiles_.now);
    for (const auto &[stage, range] : all) {
        const auto moved = first.find(stage);
        const int64_t begin = moved == first.end() ? range.first : moved->second;
        const int64_t length = range.end - range.first;
        end = std::max(end, begin + length);
        if (moved == first.end() && range.end > all.at(tiles_.next).end) {
            throw std::runtime_error("shared memory behind the keys is that of " + stage);
        }
    }
    const auto bytes = static_cast<int64_t>(allocation->type.bytes());
    return Allocate::make(allocation->name, allocation->type, allocation->memory_type,
                          {static_cast<int>((end + bytes - 1) / bytes)}, allocation->condition,
                          Relocate(allocation->name, all, first, tiles_, search.found->name).mutate(allocation->body),
                          allocation->new_expr, allocation->free_function, allocation->padding);
}

}  // namespace hattn::schedules::cuda
