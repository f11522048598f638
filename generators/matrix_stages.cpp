// Scores whose products are of matrices of bfloat16 numbers.
#include "attention_stages.h"
#include "number_formats.h"

namespace hattn::generators {

using namespace Halide;

// One sum over the elements of the head, in blocks: as AMX takes the left side dense and the right side in pairs. Keys
// where they lie are rows of a matrix, as those of a granule are evenly spaced.
void ScoreStages::multiply_matrices() {
    const auto products = products_of_scores(bfloat16_terms);
    over_dim_blocks =
        RDom({{0, kMatrixDepth}, {0, static_cast<int>(products.size())}, {0, over_dim.x.extent() / kMatrixDepth}},
             "over_dim_blocks");
    Expr first_key = c * chunk_keys + key_block * kMatrixDepth;
    Expr first_of_block = row_block * kMatrixColumns / joined_rows * joined_rows;
    Expr last_of_block = first_of_block + (joined_rows - 1);
    const auto has_rows = [&](Expr first_row) { return std::move(first_row) < inputs_.rows(); };
    block_seen = Func("block_seen");
    block_seen(row_block, key_block, c) = has_rows(first_of_block) && first_key <= last(last_of_block) &&
                                          first_key + kMatrixDepth > first(first_of_block);
    over_dim_blocks.where(block_seen(r / kMatrixColumns, k / kMatrixDepth, c));
    seen_blocks = Func("seen_blocks");
    Expr last_key = last(last_of_block) - c * chunk_keys;
    seen_blocks(row_block, c) = select(has_rows(first_of_block), (max(last_key, -1) + kMatrixDepth) / kMatrixDepth, 0);
    if (in_bands) {
        filled_bands = (inputs_.rows() + (joined_rows - 1)) / joined_rows;
        unseen_blocks = Func("unseen_blocks");
        Expr first_row = band * joined_rows, before = first(first_row) - c * chunk_keys;
        unseen_blocks(band, c) = select(has_rows(first_row), clamp(before, 0, chunk_keys) / kMatrixDepth, 0);
    }
    const TermPair terms = term_pair(over_dim_blocks.y, products);
    Expr element = over_dim_blocks.z * kMatrixDepth + over_dim_blocks.x;
    Expr key = key_rows(element, k, c);
    if (bfloat16_terms > 1) {
        key_terms = Func("key_terms");
        key_terms(d, term, k, c) = bfloat16_term(key_rows(d, k, c), term, bfloat16_terms);
        key = key_terms(element, terms.first, k, c);
    } else if (over_copies.defined()) {
        key = select(keys_fit(), inputs_.bfloat16_key(element, granule_of_key(), k % kGranuleKeys), key);
    }
    Expr query = in_bands ? query_pairs(element % 2, r % joined_rows, element / 2, terms.second, r / joined_rows)
                          : query_pairs(element % 2, r, element / 2, terms.second);
    dot(r, k, c) += cast<float>(key) * cast<float>(query);
}

Expr ScoreStages::keys_fit() const {
    return inputs_.key_dim() % kMatrixDepth == 0 && (c + 1) * chunk_keys <= inputs_.key_count;
}

}  // namespace hattn::generators
