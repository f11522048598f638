#!/usr/bin/env python3
"""Adds up the JUnit files of a test run and prints one summary.

    summary.py NAME:FILE[:FOLDER]...

FILE is what `ctest --output-junit` or `pytest --junitxml` wrote. A ctest entry T that ran a whole GoogleTest program
counts as that program's test cases if FOLDER holds T.xml, the program's own report. A FILE that is missing, damaged or
empty counts as one failure: a run that ended early must not look green. The last line is
`N passed, N failed, N skipped`; the exit status is 0 if something passed and nothing failed.
"""

import dataclasses
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

MAX_FAILURES_SHOWN = 40
# ctest writes these as skips, though it fails over them: the test should have run and could not.
NOT_STARTED = ("Unable to find executable", "Fixture dependency failed", "Required Files Missing")


@dataclasses.dataclass
class Counts:
    passed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)  # names

    def add(self, other):
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures += other.failures

    def line(self):
        return f"{self.passed} passed, {len(self.failures)} failed, {self.skipped} skipped"


def outcome(case):
    """'passed', 'failed' or 'skipped' of a <testcase> by ctest, pytest or GoogleTest."""
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    skipped = case.find("skipped")
    if skipped is not None and (skipped.get("message") or "").startswith(NOT_STARTED):
        return "failed"
    if skipped is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def case_name(case):
    return ".".join(part for part in (case.get("classname"), case.get("name")) if part)


def read_cases(path):
    """Every <testcase> of a file; an empty list if it cannot be read."""
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def count_program(entry, report):
    """Counts the cases in a GoogleTest program's report, and its failure as a whole if no case accounts for that."""
    counts = Counts()
    for case in read_cases(report):
        count_case(counts, outcome(case), case_name(case))
    if not counts.failures and outcome(entry) == "failed":
        counts.failures.append(f"{entry.get('name')} (failed outside its test cases)")
    if counts == Counts():
        counts.failures.append(f"{entry.get('name')} (ran no test case)")
    return counts


def count_case(counts, result, name):
    if result == "failed":
        counts.failures.append(name)
    elif result == "skipped":
        counts.skipped += 1
    else:
        counts.passed += 1


def count_file(path, folder=None):
    """Counts one JUnit file; folder holds the reports of the GoogleTest programs among its entries, if any."""
    counts = Counts()
    for entry in read_cases(path):
        report = folder / f"{entry.get('name')}.xml" if folder else None
        if report and report.is_file():
            counts.add(count_program(entry, report))
        else:
            count_case(counts, outcome(entry), case_name(entry) if folder is None else entry.get("name"))
    if counts == Counts():
        counts.failures.append(f"{path} (no results)")
    return counts


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    total = Counts()
    for argument in arguments:
        name, path, *folder = argument.split(":")
        counts = count_file(pathlib.Path(path), pathlib.Path(folder[0]) if folder else None)
        print(f"{name}: {counts.line()}")
        total.add(counts)
    for name in total.failures[:MAX_FAILURES_SHOWN]:
        print(f"FAILED {name}")
    if len(total.failures) > MAX_FAILURES_SHOWN:
        print(f"... and {len(total.failures) - MAX_FAILURES_SHOWN} more")
    print(total.line())
    return 0 if total.passed and not total.failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
