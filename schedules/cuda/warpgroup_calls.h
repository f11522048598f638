// Products of matrices by a warpgroup, in compiled device code: PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions". Of GPUs of capability 9.0 alone.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace hattn::schedules::cuda {

// Calls as those of matrix_calls.h, in this order. All are for one stretch of products, which run at the same time, and
// none may be there twice. A group is what instructions add up in the same registers, for 64 rows: it is counted
// through the kernel. A tile of it is 16 rows of a warp by eight columns, of which a thread has four elements, as of
// the product of mma.m16n8k16.

// Of a group, a tile, and the four elements that sums begin with.
inline constexpr const char *kWarpgroupSumsCall = "hattn_warpgroup_sums";
// wgmma.fence: sums are in registers.
inline constexpr const char *kWarpgroupFenceCall = "hattn_warpgroup_fence";
// wgmma.mma_async.m64nNk16, one for each step: of a group, its tiles, steps, whether numbers are bfloat16 and not
// float16, and of B: whether rows are summed over (else elements of a row are), how many rows there are, and where it
// begins in shared memory, in bytes. Then of A: its rows, and where the warpgroup's begin,
inline constexpr const char *kWarpgroupMemoryCall = "hattn_warpgroup_products_of_memory";
// or four registers for each step.
inline constexpr const char *kWarpgroupRegistersCall = "hattn_warpgroup_products_of_registers";
// wgmma.commit_group, and wgmma.wait_group 0.
inline constexpr const char *kWarpgroupCommitCall = "hattn_warpgroup_commit";
inline constexpr const char *kWarpgroupWaitCall = "hattn_warpgroup_wait";
// Of a group and a tile: the four sums, as 128 bits.
inline constexpr const char *kWarpgroupResultCall = "hattn_warpgroup_result";

// The text of those that are more than a word.
class WarpgroupCode {
public:
    using Operands = std::vector<std::string>;

    // Of calls, by their operands: all sums first, then where each result is.
    void take_sums(const Operands &operands);
    // Whether an element of a result begins in a register, or its group with zeros.
    bool begins_in(const Operands &operands, size_t element, const std::string &name) const;
    // Puts the sum of an element into a register, or, without one, into its own, and says which.
    std::string place(const Operands &operands, size_t element, const std::string &name);

    std::string sums(const Operands &operands) const;
    std::string products(const Operands &operands, bool a_in_memory);

    bool empty() const {
        return sums_.empty();
    }
    std::string declarations() const;

private:
    // A constant address as it is, else a register with it in units of descriptors; the code that makes it is added to
    // `code`.
    std::string in_units(const std::string &address, std::string &code);
    // The register with the descriptor of a matrix, so many bytes from such an address, of as many rows if they are
    // summed over, else 0; likewise.
    std::string matrix(const std::string &first, int bytes, int rows, std::string &code);

    bool is_from_zero(const std::string &group) const;

    using Tile = std::array<std::string, 4>;
    std::map<std::string, std::map<int, Tile>> sums_, places_;  // by group and tile
    std::set<std::string> multiplied_;
    int words_ = 0, descriptors_ = 0;
};

// For the GPUs that have these instructions.
std::string for_warpgroups(const std::string &ptx);

}  // namespace hattn::schedules::cuda
