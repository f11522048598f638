#include "options.h"

#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "hooks_option.h"
#include "number_option.h"

namespace hattn::roofline {

const char *const kUsage =
    "usage: hattn-roofline [OPTION=VALUE ...]\n"
    "  --length=2048 --keys=LENGTH --dim=128 --heads=16 --kv-heads=8 --batch=1 --full --window=KEYS\n"
    "  --dtype=float32|float16|bfloat16|int8|int4     of keys and values; of 16 bits of queries and outputs, too\n"
    "  --hooks=softcap,bias,alibi,mask,sink     what modifies scores; bias and mask are [1, 1, S, S]\n"
    "  --target=NAME --kernel=NAME              default: the planner's choice; see hattn info. Kernels of naive, "
    "flash\n"
    "                                           and split_kv\n"
    "  --tile=ROWS,KEYS,ROW_VECTORS,KEY_UNROLL,VALUE_UNROLL     a flash kernel with this tile, listed or not\n"
    "  --seconds=2                              of each measurement\n"
    "  --json --help\n";

namespace {

std::vector<std::string> words_of(const std::string &text) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; std::getline(stream, word, ',');) {
        words.push_back(word);
    }
    return words;
}

int64_t number(const std::string &option, const std::string &text) {
    return bench::whole_number_option(option, text, 1 << 24);
}

hattn_dtype dtype_of(const std::string &text) {
    static const std::map<std::string, hattn_dtype> known = {{"float32", HATTN_FLOAT32},
                                                             {"float16", HATTN_FLOAT16},
                                                             {"bfloat16", HATTN_BFLOAT16},
                                                             {"int8", HATTN_INT8},
                                                             {"int4", HATTN_INT4}};
    const auto found = known.find(text);
    if (found == known.end()) {
        bench::refuse_option("--dtype", text, "one of float32, float16, bfloat16, int8, int4");
    }
    return found->second;
}

schedules::Tile tile_of(const std::string &text) {
    std::vector<int> values;
    for (const std::string &word : words_of(text)) {
        values.push_back(static_cast<int>(number("--tile", word)));
    }
    if (values.size() != 5) {
        throw std::invalid_argument("--tile: has " + std::to_string(values.size()) + " numbers, but needs 5");
    }
    return {values[0], values[1], values[2], values[3], values[4]};
}

cases::Case usual_problem() {
    cases::Case c;
    c.name = "roofline";
    c.query_heads = 16;
    c.kv_heads = 8;
    c.query_length = 2048;
    c.kv_length = 0;
    c.key_dim = c.value_dim = 128;
    c.causal = true;
    c.lse = false;
    return c;
}

}  // namespace

Options parse_options(int argc, char **argv) {
    static const std::set<std::string> kFlags = {"--full", "--json", "--help"};
    Options options;
    cases::Case &c = options.problem = usual_problem();
    const std::map<std::string, std::function<void(const std::string &)>> known = {
        {"--length", [&](const std::string &text) { c.query_length = number("--length", text); }},
        {"--keys", [&](const std::string &text) { c.kv_length = number("--keys", text); }},
        {"--dim", [&](const std::string &text) { c.key_dim = c.value_dim = number("--dim", text); }},
        {"--heads", [&](const std::string &text) { c.query_heads = number("--heads", text); }},
        {"--kv-heads", [&](const std::string &text) { c.kv_heads = number("--kv-heads", text); }},
        {"--batch", [&](const std::string &text) { c.batch = number("--batch", text); }},
        {"--full", [&](const std::string &) { c.causal = false; }},
        {"--window", [&](const std::string &text) { c.window_left = number("--window", text) - 1; }},
        {"--dtype", [&](const std::string &text) { options.keys = dtype_of(text); }},
        {"--hooks", [&](const std::string &text) { bench::set_hooks(c, text); }},
        {"--target", [&](const std::string &text) { options.target = text; }},
        {"--kernel", [&](const std::string &text) { options.kernel = text; }},
        {"--tile", [&](const std::string &text) { options.tile = tile_of(text); }},
        {"--seconds",
         [&](const std::string &text) { options.seconds = bench::number_option("--seconds", text, 0.01, 3600.0); }},
        {"--json", [&](const std::string &) { options.json = true; }},
        {"--help", [&](const std::string &) { options.help = true; }},
    };
    for (int a = 1; a < argc; ++a) {
        const std::string argument = argv[a];
        const size_t equals = argument.find('=');
        const auto found = known.find(argument.substr(0, equals));
        if (found == known.end()) {
            throw std::invalid_argument("unknown option " + argument);
        }
        if (equals != std::string::npos && kFlags.contains(found->first)) {
            throw std::invalid_argument(found->first + ": takes no value, but is given '" +
                                        argument.substr(equals + 1) + "'");
        }
        found->second(equals == std::string::npos ? "" : argument.substr(equals + 1));
    }
    if (c.kv_length == 0) {
        c.kv_length = c.query_length;
    }
    if (options.tile && !options.kernel.empty()) {
        throw std::invalid_argument("--tile: not beside --kernel, which has one");
    }
    return options;
}

}  // namespace hattn::roofline
