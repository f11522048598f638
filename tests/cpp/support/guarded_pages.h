// Pages of keys or values in memory of which only rows that hold keys can be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hattn/hattn.h"

namespace hattn::test {

// A tensor [pages, heads, page_size, dim] that lies [pages, page_size, heads, dim] in memory, the pages apart.
class GuardedPages {
public:
    // rows: of each page, how many rows from its first on hold keys; 0 makes the whole page fault. Where fewer than
    // page_size do, row `edge` of the page lies where inaccessible memory begins, so rows must be 0, edge or page_size.
    GuardedPages(const std::vector<int64_t> &rows, int64_t heads, int64_t page_size, int64_t dim, int64_t edge);
    ~GuardedPages();
    GuardedPages(const GuardedPages &) = delete;
    GuardedPages &operator=(const GuardedPages &) = delete;

    const hattn_tensor &tensor() const {
        return tensor_;
    }

private:
    void *mapping_;
    size_t mapped_;
    hattn_tensor tensor_ = HATTN_TENSOR_INIT;
};

}  // namespace hattn::test
