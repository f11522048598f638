"""What the README shows runs."""

import pathlib
import re

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_python_of_the_readme():
    names = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(compile(code, README, "exec"), names)
    assert names["out"].shape == (1, 8, 102, 64) and list(names["step"].lengths) == [100, 1, 1]
    assert list(names["ring"].lengths) == [1020]
