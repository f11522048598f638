"""bench/overview.py: the table that docs/performance.md begins with is what its other tables say."""
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "bench" / "overview.py", *arguments], capture_output=True, text=True)


def test_the_document_says_what_its_tables_say():
    finished = run(DOCUMENT)
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) > 10
    assert f"-->\n{finished.stdout}<!--" in DOCUMENT.read_text(), "python bench/overview.py --update docs/performance.md"


def test_figures_are_those_of_the_machine_and_the_case(tmp_path):
    text = DOCUMENT.read_text()
    section = "## With AVX-512 on Zen 4\n"
    before, after = text.split(section)
    row = next(line for line in after.splitlines() if line.startswith("| 8192 keys |"))
    copy = tmp_path / "performance.md"
    copy.write_text(before + section + after.replace(row, "| 8192 keys | 1.0 ms | 2.0 GB/s | 12% | 3.45x (6 ms) | - | - | 1.00x peers |", 1))
    assert run("--update", copy).returncode == 0
    changed = [line for line, old in zip(copy.read_text().splitlines(), text.splitlines()) if line != old]
    overview = [line.split(" | ") for line in changed if "12%; 3.45, -" in line]
    heads = next(line for line in text.splitlines() if line.startswith("| case | [")).split(" | ")
    column = next(index for index, head in enumerate(heads) if head.startswith("[Zen 4]"))
    assert len(changed) == 2 and len(overview) == 1 and overview[0][column] == "12%; 3.45, -"


@pytest.mark.parametrize("old, new, message", [
    ("## With AVX-512 on Zen 5\n", "## With AVX-512 on Zen 6\n", "Zen 5: no section 'With AVX-512 on Zen 5'"),
    ("| window 256, S = 4096 | ", "| window 255, S = 4096 | ", "no row of the case 'window 256, S = 4096'"),
    ("<!-- end of the overview -->", "", "once each"),
])
def test_what_is_refused_leaves_the_document(tmp_path, old, new, message):
    text = DOCUMENT.read_text().replace(old, new)
    copy = tmp_path / "performance.md"
    copy.write_text(text)
    finished = run("--update", copy)
    assert finished.returncode != 0 and message in finished.stderr
    assert copy.read_text() == text


def test_no_document():
    finished = run("nowhere.md")
    assert finished.returncode != 0 and "nowhere.md: " in finished.stderr and "Traceback" not in finished.stderr
