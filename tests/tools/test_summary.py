"""tests/summary.py on small result files of every kind it reads."""

import pathlib
import subprocess
import sys

import pytest

SUMMARY = pathlib.Path(__file__).resolve().parent.parent / "summary.py"

PYTEST = """<testsuites><testsuite name="pytest" tests="4">
<testcase classname="m" name="a"/>
<testcase classname="m" name="b"><failure message="x"/></testcase>
<testcase classname="m" name="c"><error message="x"/></testcase>
<testcase classname="m" name="d"><skipped message="x"/></testcase>
</testsuite></testsuites>"""

CTEST_GREEN = """<testsuite tests="2">
<testcase name="plain" classname="plain" status="run"/>
<testcase name="program" classname="program" status="run"/>
</testsuite>"""

CTEST_RED = """<testsuite tests="4">
<testcase name="plain" classname="plain" status="fail"><failure message=""/></testcase>
<testcase name="program" classname="program" status="fail"><failure message=""/></testcase>
<testcase name="off" classname="off" status="disabled"/>
<testcase name="skips" classname="skips" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
</testsuite>"""

GTEST_GREEN = """<testsuites tests="3"><testsuite name="S">
<testcase name="a" status="run" result="completed" classname="S"/>
<testcase name="b" status="run" result="completed" classname="S"/>
<testcase name="c" status="run" result="skipped" classname="S"><skipped message="m"/></testcase>
<testcase name="d" status="notrun" result="suppressed" classname="S"/>
</testsuite></testsuites>"""

GTEST_RED = """<testsuites tests="2"><testsuite name="S">
<testcase name="a" status="run" result="completed" classname="S"/>
<testcase name="b" status="run" result="completed" classname="S"><failure message="m"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def summarise(tmp_path):
    """summarise(argument..., files={name: text}) -> (exit status, lines printed), run inside a folder of those files."""

    def run(*arguments, files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SUMMARY, *arguments], cwd=tmp_path, capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout.splitlines()

    return run


def test_pytest_failures_and_errors_fail(summarise):
    status, lines = summarise("py:p.xml", files={"p.xml": PYTEST})
    assert status == 1
    assert lines == ["py: 1 passed, 2 failed, 1 skipped", "FAILED m.b", "FAILED m.c", "1 passed, 2 failed, 1 skipped"]


def test_program_counts_as_its_cases(summarise):
    status, lines = summarise("c:c.xml:gtest", files={"c.xml": CTEST_GREEN, "gtest/program.xml": GTEST_GREEN})
    assert (status, lines[-1]) == (0, "3 passed, 0 failed, 2 skipped")


def test_program_without_report_counts_once(summarise):
    status, lines = summarise("c:c.xml:gtest", files={"c.xml": CTEST_GREEN})
    assert (status, lines[-1]) == (0, "2 passed, 0 failed, 0 skipped")


def test_failed_case_counts_once(summarise):
    status, lines = summarise("c:c.xml:gtest", files={"c.xml": CTEST_RED, "gtest/program.xml": GTEST_RED})
    assert (status, lines[-1]) == (1, "1 passed, 2 failed, 2 skipped")
    assert "FAILED S.b" in lines and "FAILED plain" in lines


def test_program_that_fails_outside_its_cases(summarise):
    status, lines = summarise("c:c.xml:gtest", files={"c.xml": CTEST_RED, "gtest/program.xml": GTEST_GREEN})
    assert (status, lines[-1]) == (1, "2 passed, 2 failed, 4 skipped")


def test_damaged_report_of_a_failed_program(summarise):
    status, lines = summarise("c:c.xml:gtest", files={"c.xml": CTEST_RED, "gtest/program.xml": GTEST_RED[:60]})
    assert (status, lines[-1]) == (1, "0 passed, 2 failed, 2 skipped")


@pytest.mark.parametrize("files", [{}, {"p.xml": PYTEST[:50]}, {"p.xml": "<testsuites/>"}],
                         ids=["missing", "damaged", "empty"])
def test_no_results_fail(summarise, files):
    status, lines = summarise("py:p.xml", "c:c.xml", files={**files, "c.xml": CTEST_GREEN})
    assert (status, lines[-1]) == (1, "2 passed, 1 failed, 0 skipped")


@pytest.mark.parametrize("reason", ["Unable to find executable", "Fixture dependency failed", "Required Files Missing"])
def test_a_test_that_could_not_start_fails(summarise, reason):
    entry = f'<testcase name="gone" status="notrun"><skipped message="{reason}"/></testcase>'
    status, lines = summarise("c:c.xml", files={"c.xml": CTEST_GREEN.replace("</testsuite>", entry + "</testsuite>")})
    assert (status, lines[-2:]) == (1, ["FAILED gone", "2 passed, 1 failed, 0 skipped"])


def test_program_without_cases_fails(summarise):
    status, lines = summarise("c:c.xml:gtest", files={"c.xml": CTEST_GREEN, "gtest/program.xml": "<testsuites/>"})
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")


def test_nothing_passed_fails(summarise):
    skipped = '<testsuite><testcase name="a" status="disabled"/></testsuite>'
    status, lines = summarise("c:c.xml", files={"c.xml": skipped})
    assert (status, lines[-1]) == (1, "0 passed, 0 failed, 1 skipped")


def test_no_arguments(summarise):
    assert summarise(files={})[0] == 2
