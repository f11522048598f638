// Cases as parameters of tests.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "case_list.h"

namespace hattn::test {

struct CaseParam {
    const cases::Case *spec;
};

inline void PrintTo(const CaseParam &param, std::ostream *stream) {
    *stream << cases::describe(*param.spec);
}

inline std::vector<CaseParam> case_params(const std::function<bool(const cases::Case &)> &wanted) {
    std::vector<CaseParam> params;
    for (const cases::Case &c : cases::all_cases()) {
        if (wanted(c)) {
            params.push_back({&c});
        }
    }
    return params;
}

}  // namespace hattn::test
