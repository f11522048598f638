#include "case_list.h"

#include <utility>

namespace hattn::cases {

void add(std::vector<Case> &list, std::string name, Case c) {
    c.name = std::move(name);
    list.push_back(std::move(c));
}

const std::vector<Case> &all_cases() {
    static const std::vector<Case> cases = [] {
        constexpr size_t kRandomCases = 240;
        std::vector<Case> list;
        for (const std::vector<Case> &family : {shape_cases(), position_cases(), hook_cases(), storage_cases(),
                                                value_cases(), random_cases(kRandomCases)}) {
            list.insert(list.end(), family.begin(), family.end());
        }
        return list;
    }();
    return cases;
}

}  // namespace hattn::cases
