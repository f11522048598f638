// Which pages of a paged cache belong to which sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "row_counts.h"

namespace hattn {

// A page that others use too, and the one a sequence has got in its place. Its first `rows` rows are to be copied.
struct PageCopy {
    int64_t sequence;
    int32_t from, to;
    int64_t rows;
};

// A pool of pages, and per sequence the list of those it uses. A page may be used by several sequences and is free when
// none does. Lengths are the caller's to keep. Only the constructor allocates.
class PageTable {
public:
    PageTable() = default;
    PageTable(int64_t batch, int64_t capacity, int64_t page_size, int64_t page_count);

    int64_t available() const {
        return static_cast<int64_t>(free_.size());
    }
    int64_t used() const {
        return static_cast<int64_t>(users_.size()) - available();
    }
    // [B, stride()]; -1 where a sequence has no page.
    const int32_t *data() const {
        return entries_.data();
    }
    int64_t stride() const {
        return stride_;
    }
    int32_t page_of(int64_t sequence, int64_t position) const {
        return entries_[static_cast<size_t>(sequence * stride_ + position / page_size_)];
    }

    // Gives every sequence pages for the rows to be added that no other sequence uses. Returns the copies this takes,
    // valid until the next call. Throws HATTN_CAPACITY_EXCEEDED if there are too few pages, and then nothing has
    // changed.
    const std::vector<PageCopy> &extend(const std::vector<int32_t> &lengths, const RowCounts &added);

    // Takes back what the last extend() of the same rows did, whose copies have not been made.
    void undo_extend(const std::vector<int32_t> &lengths, const RowCounts &added);

    // Takes back the pages of the added rows alone: sequences keep their copies.
    void give_back(const std::vector<int32_t> &lengths, const RowCounts &added);

    // Takes a sequence from `length` rows to `kept`, which is no more.
    void shrink(int64_t sequence, int64_t length, int64_t kept);

    // Makes an empty sequence use the pages of the first `length` rows of another.
    void share(int64_t from, int64_t to, int64_t length);

private:
    int32_t *row(int64_t sequence) {
        return entries_.data() + sequence * stride_;
    }
    int64_t pages_of(int64_t length) const;
    int32_t take();
    void release(int32_t page);
    int64_t detach_shared(const std::vector<int32_t> &lengths, const RowCounts &added);

    int64_t page_size_ = 1, stride_ = 0;
    std::vector<int32_t> entries_;
    std::vector<int32_t> users_;  // of each page
    std::vector<int32_t> free_;   // the one taken next comes last
    std::vector<PageCopy> copies_;
};

}  // namespace hattn
