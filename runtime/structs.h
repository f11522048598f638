// Reading public structures, which carry their size.
#pragma once

#include "status.h"

namespace hattn {

// A copy of *given, once it is known to be one of ours. 0.1 is the first version, so there is one size.
template<typename Struct>
Struct read_struct(const Struct *given, const char *name) {
    require(given, HATTN_INVALID_ARGUMENT, name, ": is null");
    require(given->struct_size == sizeof(Struct), HATTN_INVALID_ARGUMENT, name, ".struct_size: is ", given->struct_size,
            ", but this version of hattn (", hattn_version(), ") knows ", sizeof(Struct));
    return *given;
}

}  // namespace hattn
