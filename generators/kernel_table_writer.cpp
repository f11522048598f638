#include "kernel_table_writer.h"

#include <sstream>

#include "candidates.h"
#include "kernel_contract.h"
#include "kernel_spec.h"
#include "runtime/pack_file.h"

namespace hattn::generators {

using schedules::Architecture;
using schedules::TargetRow;

const char *kind_enumerator(KernelKind kind) {
    switch (kind) {
    case KernelKind::kNaive:
        return "KernelKind::kNaive";
    case KernelKind::kFlash:
        return "KernelKind::kFlash";
    case KernelKind::kSplitKv:
        return "KernelKind::kSplitKv";
    case KernelKind::kUnfusedScores:
        return "KernelKind::kUnfusedScores";
    case KernelKind::kUnfusedValues:
        return "KernelKind::kUnfusedValues";
    case KernelKind::kScores:
        return "KernelKind::kScores";
    case KernelKind::kProbabilities:
        return "KernelKind::kProbabilities";
    case KernelKind::kMerge:
        return "KernelKind::kMerge";
    case KernelKind::kWiden:
        return "KernelKind::kWiden";
    case KernelKind::kNarrow:
        return "KernelKind::kNarrow";
    case KernelKind::kBlockScales:
        return "KernelKind::kBlockScales";
    case KernelKind::kQuantize:
        return "KernelKind::kQuantize";
    case KernelKind::kAppend:
        return "KernelKind::kAppend";
    }
    return "";
}

namespace {

const char *enumerator(KeyStorage storage) {
    switch (storage) {
    case KeyStorage::kFloat32:
        return "KeyStorage::kFloat32";
    case KeyStorage::kAny:
        return "KeyStorage::kAny";
    case KeyStorage::kBfloat16:
        return "KeyStorage::kBfloat16";
    case KeyStorage::kBfloat16Matrices:
        return "KeyStorage::kBfloat16Matrices";
    case KeyStorage::kFloat32Matrices:
        return "KeyStorage::kFloat32Matrices";
    case KeyStorage::kAnyMatrices:
        return "KeyStorage::kAnyMatrices";
    case KeyStorage::kHalvesMatrices:
        return "KeyStorage::kHalvesMatrices";
    case KeyStorage::kAllFloat16:
        return "KeyStorage::kAllFloat16";
    case KeyStorage::kAllBfloat16:
        return "KeyStorage::kAllBfloat16";
    case KeyStorage::kAllInt8:
        return "KeyStorage::kAllInt8";
    case KeyStorage::kAllInt4:
        return "KeyStorage::kAllInt4";
    case KeyStorage::kInt8Lines:
        return "KeyStorage::kInt8Lines";
    case KeyStorage::kInt4Lines:
        return "KeyStorage::kInt4Lines";
    case KeyStorage::kBfloat16Rows:
        return "KeyStorage::kBfloat16Rows";
    case KeyStorage::kInt8Matrices:
        return "KeyStorage::kInt8Matrices";
    case KeyStorage::kInt4Matrices:
        return "KeyStorage::kInt4Matrices";
    }
    return "";
}

const char *literal(bool value) {
    return value ? "true" : "false";
}

std::string braces(const schedules::Tile &tile) {
    std::ostringstream text;
    text << "{" << tile.rows << ", " << tile.keys << ", " << tile.row_vectors << ", " << tile.key_unroll << ", "
         << tile.value_unroll << "}";
    return text.str();
}

void write_rows(const Architecture &architecture, std::ostream &out) {
    out << "const TargetInfo kTargets[] = {\n";
    for (const TargetRow &row : architecture.targets) {
        out << "    {\"" << row.name << "\", \"" << row.cpu_features << "\", " << row.lanes << "},\n";
    }
    out << "};\n\nconst ScoreHookInfo kScoreHooks[] = {\n";
    for (const ScoreHook &hook : score_hooks()) {
        out << "    {\"" << hook.name << "\", " << hook.bit << ", " << literal(hook.can_hide_keys) << ", "
            << literal(hook.has_neutral) << "},\n";
    }
    out << "};\n\nconst KernelInfo kKernels[] = {\n";
    for_each_kernel(architecture, [&](const KernelSpec &spec, const TargetRow &target) {
        const std::string name = spec.name(target.name);
        out << "    {\"" << name << "\", \"" << target.name << "\", " << kind_enumerator(spec.kind) << ", "
            << enumerator(spec.storage) << ", \"" << further_cpu_features(spec, target) << "\", " << spec.hooks << ", "
            << braces(spec.tile) << ", " << spec.symbol(target.name) << "_argv, \"" << made_for(spec, target) << "\", "
            << literal(spec.from_memory != FromMemory::kNo) << "},\n";
    });
    out << "};\n\nconst CandidateInfo kCandidates[] = {\n";
    for (const TargetRow &row : architecture.targets) {
        const TargetRow target = schedules::resolve_target(architecture, row.name);
        for_each_candidate(target, [&](const KernelSpec &spec) {
            out << "    {\"" << spec.name(target.name) << "\", \"" << target.name << "\", "
                << kind_enumerator(spec.kind) << ", " << braces(spec.tile) << "},\n";
        });
    }
    out << "};\n";
}

}  // namespace

void write_kernel_table(const Architecture &architecture, std::ostream &out) {
    out << "// Written by hattn-kernelgen.\n#include \"runtime/kernel_table.h\"\n\n#include <iterator>\n\nextern \"C\" "
           "{\n";
    for_each_kernel(architecture, [&](const KernelSpec &spec, const TargetRow &target) {
        out << "int " << spec.symbol(target.name) << "_argv(void **arguments);\n";
    });
    out << "}\n\nnamespace hattn {\n\nnamespace {\n\n";
    write_rows(architecture, out);
    out << "\n}  // namespace\n\n"
           "const KernelTable &kernel_table() {\n"
           "    static constexpr KernelTable table = {kTargets, std::size(kTargets), kScoreHooks, "
           "std::size(kScoreHooks),\n"
           "                                          kKernels, std::size(kKernels), kCandidates,\n"
           "                                          std::size(kCandidates), 0x"
        << hash_text(kernel_contract())
        << "};\n"
           "    return table;\n"
           "}\n\n}  // namespace hattn\n";
}

}  // namespace hattn::generators
