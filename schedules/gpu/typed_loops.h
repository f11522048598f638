// A lowering pass: loops over chunks of keys that know the types of what they read.
#pragma once

#include <string>
#include <vector>

#include "Halide.h"
#include "hattn/hattn.h"
#include "runtime/device/unit_record.h"

namespace hattn::schedules::gpu {

// What a kernel's stages of any type ask for.
struct TypedSides {
    std::string key_type, value_type, row_layout;  // names of arguments
    std::vector<std::string> rows;                 // buffers of keys and values
};

// In front of the loop over chunks, whose stages choose among types for themselves, this puts one for each type that
// keys and values may both have and for each layout of rows that are aligned: it has no such choices, and in it vectors
// from memory are loads of 16 bytes.
class TypedLoops : public Halide::Internal::IRMutator {
public:
    // loop: part of its name. vector: elements of a row.
    TypedLoops(TypedSides sides, std::string loop, int vector)
        : sides_(std::move(sides)), loop_(std::move(loop)), vector_(vector) {}

private:
    using IRMutator::visit;

    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override;
    Halide::Internal::Stmt visit(const Halide::Internal::For *loop) override;

    Halide::Internal::Stmt loop_of(hattn_dtype type, RowLayout layout, const Halide::Internal::For *loop) const;

    TypedSides sides_;
    std::string loop_;
    int vector_;
};

}  // namespace hattn::schedules::gpu
