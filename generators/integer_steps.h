// How a kernel for int8 or int4 keys and values alone goes through a row: in steps, each a few whole vectors of numbers
// that are brought into float32 with as little work as the type allows. Scales are left to what is multiplied by them.
#pragma once

#include "row_steps.h"

namespace hattn::generators {

// Elements of a row that one step of a dot product takes, over keys of one type.
int step_elements(hattn_dtype type);

// Positions count the numbers of a row as vectors have them, from step to step. Of int8 they are its elements. Of int4
// a lane has a word of several elements that lie side by side, and a vector one of each word, so that words are loaded
// once for all and nothing is shuffled:
//   position = (step * vectors + vector) * lanes + lane   has element   start(step) + lane * vectors + vectors - 1 -
//   vector.
// An element is brought to the top of its lane, the others are masked off, and what is converted is 2^28 times the
// element: a number that is exact, and one that the other factor, or the sum, is divided by.
struct IntegerSteps : RowSteps {
    IntegerSteps(hattn_dtype type, int lanes, const Halide::Expr &dim);

    int vectors() const;  // of a step

    // Of the number at a position, given those of blocks of kScaleBlock elements.
    Halide::Expr scale(const Row &of_block, const Halide::Expr &position) const;
    bool in_words() const {
        return type == HATTN_INT4;
    }
    // The word of a lane of all vectors of a step, given the bytes of the row; with in_words().
    Halide::Expr word(const Row &byte, const Halide::Expr &lane, const Halide::Expr &step) const;
    // The number at a position, given these, or else bytes.
    using Words = std::function<Halide::Expr(Halide::Expr lane, Halide::Expr step)>;
    Halide::Expr number(const Row &byte, const Words &word, const Halide::Expr &position) const;
    // What to multiply the number at a position by, given the elements of the other factor.
    Halide::Expr query(const Row &element, const Halide::Expr &position) const;
    // A sum of multiples of an element, given those of the numbers at positions.
    Halide::Expr sum(const Row &at_position, const Halide::Expr &element) const;

private:
    Halide::Expr step_of(const Halide::Expr &position) const;
    Halide::Expr vector_of(const Halide::Expr &position) const;
    Halide::Expr lane_of(const Halide::Expr &position) const;
};

}  // namespace hattn::generators
