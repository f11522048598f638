#include "page_table.h"

#include <algorithm>
#include <numeric>

#include "checked.h"
#include "status.h"

namespace hattn {

namespace {

constexpr int32_t kNoPage = -1;

}  // namespace

PageTable::PageTable(int64_t batch, int64_t capacity, int64_t page_size, int64_t page_count)
    : page_size_(page_size),
      stride_(std::min(ceil_div(capacity, page_size), page_count)),
      entries_(static_cast<size_t>(checked_multiply(batch, stride_, "size of the block table")), kNoPage),
      users_(static_cast<size_t>(page_count), 0),
      free_(static_cast<size_t>(page_count)) {
    std::iota(free_.rbegin(), free_.rend(), 0);
    copies_.reserve(static_cast<size_t>(batch));
}

int64_t PageTable::pages_of(int64_t length) const {
    return ceil_div(length, page_size_);
}

int32_t PageTable::take() {
    const int32_t page = free_.back();
    free_.pop_back();
    users_[static_cast<size_t>(page)] = 1;
    return page;
}

void PageTable::release(int32_t page) {
    if (--users_[static_cast<size_t>(page)] == 0) {
        free_.push_back(page);
    }
}

// Takes sequences off shared pages they would write to, the last user keeping it, and lists the copies. Returns how
// many pages are wanted altogether.
int64_t PageTable::detach_shared(const std::vector<int32_t> &lengths, const RowCounts &added) {
    copies_.clear();
    int64_t wanted = 0;
    for (size_t b = 0; b < lengths.size(); ++b) {
        const auto sequence = static_cast<int64_t>(b);
        const int64_t length = lengths[b], more = added.of(sequence);
        if (more == 0) {
            continue;
        }
        wanted += pages_of(length + more) - pages_of(length);
        const int64_t rows = length % page_size_;
        const int32_t last = rows > 0 ? page_of(sequence, length) : kNoPage;
        if (rows > 0 && users_[static_cast<size_t>(last)] > 1) {
            --users_[static_cast<size_t>(last)];
            copies_.push_back({sequence, last, kNoPage, rows});
            ++wanted;
        }
    }
    return wanted;
}

const std::vector<PageCopy> &PageTable::extend(const std::vector<int32_t> &lengths, const RowCounts &added) {
    const int64_t wanted = detach_shared(lengths, added);
    if (wanted > available()) {
        for (const PageCopy &copy : copies_) {
            ++users_[static_cast<size_t>(copy.from)];
        }
        fail(HATTN_CAPACITY_EXCEEDED, "k: the new rows want ", wanted, " pages of ", page_size_, " keys, but ",
             available(), " of the cache's ", users_.size(), " are free");
    }
    for (PageCopy &copy : copies_) {
        copy.to = take();
        row(copy.sequence)[lengths[static_cast<size_t>(copy.sequence)] / page_size_] = copy.to;
    }
    for (size_t b = 0; b < lengths.size(); ++b) {
        const auto sequence = static_cast<int64_t>(b);
        const int64_t more = added.of(sequence);
        for (int64_t n = pages_of(lengths[b]); n < pages_of(lengths[b] + more); ++n) {
            row(sequence)[n] = take();
        }
    }
    return copies_;
}

void PageTable::undo_extend(const std::vector<int32_t> &lengths, const RowCounts &added) {
    give_back(lengths, added);
    for (const PageCopy &copy : copies_) {
        row(copy.sequence)[lengths[static_cast<size_t>(copy.sequence)] / page_size_] = copy.from;
        ++users_[static_cast<size_t>(copy.from)];
        release(copy.to);
    }
}

void PageTable::give_back(const std::vector<int32_t> &lengths, const RowCounts &added) {
    for (size_t b = 0; b < lengths.size(); ++b) {
        const auto sequence = static_cast<int64_t>(b);
        shrink(sequence, lengths[b] + added.of(sequence), lengths[b]);
    }
}

void PageTable::shrink(int64_t sequence, int64_t length, int64_t kept) {
    for (int64_t n = pages_of(length); n-- > pages_of(kept);) {
        release(row(sequence)[n]);
        row(sequence)[n] = kNoPage;
    }
}

void PageTable::share(int64_t from, int64_t to, int64_t length) {
    for (int64_t n = 0; n < pages_of(length); ++n) {
        const int32_t page = row(from)[n];
        row(to)[n] = page;
        ++users_[static_cast<size_t>(page)];
    }
}

}  // namespace hattn
