// The file of a kernel pack: a shared object, followed by a JSON text that says what it holds, followed by a trailer.
// Everything is checked before the file is given to the system's loader, which trusts what it maps; one that took its
// place in between is found by its id.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hattn {

// The last bytes of the file, little-endian.
struct PackTrailer {
    static constexpr uint64_t kFormat = 1;
    static constexpr std::array<char, 8> kMagic = {'h', 'a', 't', 't', 'n', 'p', 'c', 'k'};

    uint64_t text_bytes = 0;  // of the JSON text
    uint64_t hash = 0;        // hash_bytes() of all before the trailer
    uint64_t format = kFormat;
    std::array<char, 8> magic = kMagic;
};

// The JSON text:
//     {"library": "0.1.0", "contract": "16 hex digits", "id": "16 hex digits", "kernels": [
//       {"name": ..., "target": ..., "kind": ..., "storage": ..., "needs": ..., "hooks": [...],
//        "tile": [rows, keys, row_vectors, key_unroll, value_unroll],
//        "symbol": name of the function in the shared object}, ...],
//      "device_kernels": [
//       {"name": ..., "device": "cuda", "kind": ..., "hooks": [...], "tile": [rows, keys, head, slices, thread_rows, 1
//       with warpgroups],
//        "matrix_type": a hattn_dtype, "any_float": ..., "shared_bytes": ..., "symbol": ...}, ...]}
// contract: that of KernelTable. id: of this pack, in the symbol kPackIdSymbol too.
inline constexpr const char *kPackIdSymbol = "hattn_pack_id";

// FNV-1a, 64 bits. Against damage, not against malice.
inline uint64_t hash_bytes(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
    for (const char byte : bytes) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    }
    return hash;
}
std::string hash_text(uint64_t hash);  // 16 hex digits

// Of the names of kernels that `counts` takes, each with the zero that ends it.
template<typename Kernels, typename Counts>
std::string hash_of_names(const Kernels &kernels, Counts counts) {
    uint64_t hash = hash_bytes("");
    for (const auto &kernel : kernels) {
        if (counts(kernel)) {
            hash = hash_bytes({kernel.name, std::strlen(kernel.name) + 1}, hash);
        }
    }
    return hash_text(hash);
}

// The JSON text of a file that is whole; throws StatusError otherwise.
std::string read_pack_text(const std::string &path);

// object, text and the trailer that belongs to them.
std::string pack_file(std::string_view object, std::string_view text);

}  // namespace hattn
