// Takes the inputs of a problem out of all caches, as they are in a model whose other layers ran in between.
#pragma once

#include <vector>

#include "typed_problem.h"

namespace hattn::autotune {

class ColdCaches {
public:
    // cache_bytes: of the largest cache, for CPUs on which programs cannot flush single lines.
    explicit ColdCaches(double cache_bytes);
    void evict(const cases::TypedProblem &problem);

private:
    std::vector<unsigned char> sweep_;
};

}  // namespace hattn::autotune
