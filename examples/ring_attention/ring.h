// A ring of MPI ranks that pass blocks of a sequence on.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

// Consecutive tokens, [first, first + count).
struct Block {
    std::int64_t first, count;
};

// The share of one of `parts` in `total` tokens; shares differ by at most one.
inline Block share(std::int64_t total, int part, int parts) {
    const std::int64_t first = total * part / parts;
    return {first, total * (part + 1) / parts - first};
}

inline int message_size(std::size_t floats) {
    if (floats > static_cast<std::size_t>(INT32_MAX)) {
        throw std::length_error("a shard has more than 2^31 - 1 numbers: take more ranks");
    }
    return static_cast<int>(floats);
}

class Ring {
public:
    Ring() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
    }

    int rank() const {
        return rank_;
    }
    int size() const {
        return size_;
    }

    // Starts sending `out` to the next rank and receiving `in` from the one before; finish() waits for both.
    void pass_on(const std::vector<float> &out, std::vector<float> &in) {
        const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
        MPI_Irecv(in.data(), message_size(in.size()), MPI_FLOAT, previous, 0, MPI_COMM_WORLD, &requests_[0]);
        MPI_Isend(out.data(), message_size(out.size()), MPI_FLOAT, next, 0, MPI_COMM_WORLD, &requests_[1]);
    }
    void finish() {
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    }

private:
    int rank_ = 0, size_ = 1;
    std::array<MPI_Request, 2> requests_ = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};
