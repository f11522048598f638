#include "kernel_table_writer.h"

#include "kernel_spec.h"

namespace hattn::generators {

using schedules::TargetRow;

namespace {

const char *enumerator(KernelKind kind) {
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
    }
    return "";
}

const char *literal(bool value) {
    return value ? "true" : "false";
}

void write_rows(std::ostream &out) {
    out << "const TargetInfo kTargets[] = {\n";
    for (const TargetRow &row : schedules::targets()) {
        out << "    {\"" << row.name << "\", \"" << row.cpu_features << "\", " << row.lanes << "},\n";
    }
    out << "};\n\nconst ScoreHookInfo kScoreHooks[] = {\n";
    for (const ScoreHook &hook : score_hooks()) {
        out << "    {\"" << hook.name << "\", " << hook.bit << ", " << literal(hook.can_hide_keys) << ", "
            << literal(hook.has_neutral) << "},\n";
    }
    out << "};\n\nconst KernelInfo kKernels[] = {\n";
    for_each_kernel([&](const KernelSpec &spec, const TargetRow &target) {
        const std::string name = spec.name(target.name);
        out << "    {\"" << name << "\", \"" << target.name << "\", " << enumerator(spec.kind) << ", "
            << (spec.any_storage ? "true" : "false") << ", " << spec.hooks << ", {" << spec.tile.rows << ", "
            << spec.tile.keys << ", " << spec.tile.row_vectors << ", " << spec.tile.key_unroll << ", "
            << spec.tile.value_unroll << "}, " << spec.symbol(target.name) << "_argv},\n";
    });
    out << "};\n";
}

}  // namespace

void write_kernel_table(std::ostream &out) {
    out << "// Written by hattn-kernelgen.\n#include \"runtime/kernel_table.h\"\n\n#include <iterator>\n\nextern \"C\" "
           "{\n";
    for_each_kernel([&](const KernelSpec &spec, const TargetRow &target) {
        out << "int " << spec.symbol(target.name) << "_argv(void **arguments);\n";
    });
    out << "}\n\nnamespace hattn {\n\nnamespace {\n\n";
    write_rows(out);
    out << "\n}  // namespace\n\n"
           "const KernelTable &kernel_table() {\n"
           "    static constexpr KernelTable table = {kTargets, std::size(kTargets), kScoreHooks, "
           "std::size(kScoreHooks),\n"
           "                                          kKernels, std::size(kKernels)};\n"
           "    return table;\n"
           "}\n\n}  // namespace hattn\n";
}

}  // namespace hattn::generators
