import pytest

from assembly import INSTRUCTION_SETS
from kernel_assembly import built_assembly, kernelgen


@pytest.fixture(scope="module")
def emit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")

    def assembly_of(name, isa):
        target = next(target for target, of_target in INSTRUCTION_SETS.items() if of_target is isa)
        if text := built_assembly(name, target, isa):
            return text
        path = folder / f"{name}.s"
        if not path.exists():
            kernelgen(isa.architecture, "emit", name, folder)
        return path.read_text()

    return assembly_of
