"""The file that tunings are kept in: merged, compacted, damaged, and written by several at once."""

import json
import math
import multiprocessing
import os
import pathlib
import re
import stat
import subprocess
import sys
import warnings

import numpy as np
import pytest

import hattn
from hattn._tuning import database, session
from helpers import random_qkv
from tuning_entries import chooses, entry_for, keys, keys_of, stays, tune


def test_a_damaged_file_is_one_line_on_the_command_line(path):
    path.write_text("{")
    environment = {**os.environ, "HATTN_TUNING": str(path)}
    process = subprocess.run(
        [sys.executable, "-m", "hattn", "info"], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stderr.startswith("hattn: warning: tuning database") and process.stderr.count("\n") == 1
    assert json.loads(process.stdout)["tuning_database"]["state"] == "ignored"


def test_what_lies_under_the_librarys_own_name_is_replaced(tmp_path):
    """So the warning says of it, and of a file that somebody named the contrary."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("HATTN_TUNING", None)

    def info(**variables):
        command = [sys.executable, "-m", "hattn", "info"]
        return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=True)

    own = pathlib.Path(json.loads(info().stdout)["tuning_database"]["path"])
    own.parent.mkdir()
    own.write_text("garbage")
    assert info().stderr.rstrip().endswith("; hattn tune makes a new one")
    assert info(HATTN_TUNING=str(own)).stderr.rstrip().endswith("; hattn tune leaves it alone")


def test_one_warning_per_file(path, monkeypatch):
    path.write_text("[]")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hattn.info()
        monkeypatch.setenv("HATTN_FORCE", "algorithm=naive")  # a new session
        hattn.info()
    assert len(caught) == 1


def _merge_many(path, first):
    for at in range(first, first + 20):
        database.merge(pathlib.Path(path), [stays(at)])


def test_concurrent_tuners_lose_nothing(path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_merge_many, args=(str(path), 100 * at)) for at in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert keys_of(path) == keys(*(100 * at + i for at in range(4) for i in range(20)))
    assert not [file for file in path.parent.iterdir() if file.name.startswith(f".{path.name}")]


def test_merging_replaces_entries_of_a_class_and_foreign_files(path):
    database.merge(path, [stays(1), stays(2)])
    tile = hattn.explain(*random_qkv(np.random.default_rng(1)), algorithm="naive")["tile"]
    naive = {"algorithm": "naive", "tile": tile, "split_keys": 0, "heads": 1}
    database.merge(path, [stays(1, naive)])
    assert keys_of(path) == keys(1, 2)
    assert [entry["choice"] for entry in database.read(path) if entry["choice"]] == [naive]
    document = json.loads(path.read_text())
    document["stamp"]["cpu"] = "Z80"
    path.write_text(json.dumps(document))
    assert database.read(path) == []
    with pytest.warns(RuntimeWarning, match='was ignored: it was made for cpu "Z80", .* it is .*.ignored now'):
        database.merge(path, [stays(3)])
    assert keys_of(path) == keys(3)
    assert json.loads(path.with_name("tuning.json.ignored").read_text()) == document


def test_what_is_set_aside_stays(path):
    """A second file has another name; and what is new is there before anybody is warned."""
    for name in ("tuning.json.ignored", "tuning.json.ignored1"):
        path.write_text(name)
        with warnings.catch_warnings(), pytest.raises(RuntimeWarning, match=name):
            warnings.simplefilter("error")
            database.merge(path, [stays(3)])
        assert path.with_name(name).read_text() == name
        assert keys_of(path) == keys(3)


def test_compacting_keeps_every_decision(path):
    """Whatever is looked up, the same entry's choice decides before and after."""
    flash = chooses("flash")
    entries = [stays(number, flash if number in (33, 138) else None) for number in range(300)]
    entries += [stays(number, flash) for number in (0, 99)]
    database.merge(path, entries)

    def decisions():
        found = {}
        for family in (1, 2, 4):
            cells = [entry for entry in database.read(path) if entry["class"]["group"] == family]
            for number in range(100):
                wanted = stays(number)["class"]

                def steps(entry, wanted=wanted):
                    cell = entry["class"]
                    far = [abs(math.log2(cell[name] / wanted[name])) for name in ("rows", "keys")]
                    return 4 * far[0] + far[1] if far[0] <= 1 and far[1] <= 2 else math.inf

                nearest = min(cells, key=steps)
                found[family, number] = nearest["choice"] if steps(nearest) < math.inf else None
        return found

    before = decisions()
    database.compact(path)
    assert decisions() == before
    assert len(database.read(path)) < 100
    assert {entry["class"]["group"] for entry in database.read(path)} == {1, 2, 4}


def test_compacting_knows_that_float32_steps_in(path):
    """An entry of another type that keeps the default stays where one of float32 would decide in its stead."""

    def in_int8(number):
        entry = stays(number)
        return {**entry, "class": {**entry["class"], "dtype": "int8"}}

    kept = [stays(33, chooses("flash")), in_int8(33), in_int8(154)]
    database.merge(path, [*kept, in_int8(99), in_int8(138)])
    database.compact(path)
    assert keys_of(path) == sorted(map(database.class_key, kept))


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["entries"][0].update(gain="x"),
        lambda document: document["entries"][0]["class"].update(keys=True),
        lambda document: document.update(packs=None),
        lambda document: document.update(packs=[1]),
        lambda document: document.update(entries={}),
    ],
)
def test_what_the_library_refuses_is_not_written_again(path, change):
    """Whatever is wrong with it, the library takes the next file."""
    database.merge(path, [stays(1)])
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    assert database.read(path) == []
    with pytest.warns(RuntimeWarning, match="was ignored"):
        database.merge(path, [stays(2)])
    assert database.why_not_used(path) == "" and keys_of(path) == keys(2)


def test_nesting_is_no_traceback(path, shapes_file, capsys):
    path.write_text("[" * 100000)
    assert database.read(path) == []
    database.merge(path, [stays(1)], forget=True)
    nested = '{"deep": ' + "[" * 100000 + "]" * 100000 + "," + path.read_text()[1:]
    path.write_text(nested)
    assert tune("--shapes", shapes_file) == 1
    assert "is nested too deeply" in capsys.readouterr().err
    assert path.read_text() == nested


def test_what_cannot_be_read_stays(path, shapes_file, capsys):
    """A link to itself, as of a file without permission."""
    path.symlink_to(path)
    for arguments in ((), ("--force",), ("--resume",)):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert tune("--shapes", shapes_file, *arguments) == 1
        assert f"{path}: cannot be read: " in capsys.readouterr().err
    assert path.is_symlink()


def test_the_first_entry_of_a_class_counts(path, rng, monkeypatch):
    """As it does to the library."""
    arrays = random_qkv(rng)
    naive, flash = entry_for(arrays, "naive"), entry_for(arrays, "flash")
    database.merge(path, [naive])
    document = json.loads(path.read_text())
    document["entries"].append(flash)
    path.write_text(json.dumps(document))
    monkeypatch.setenv("HATTN_TUNING", f"{path.parent}/./{path.name}")  # as a process that starts now
    assert hattn.explain(*arrays)["algorithm"] == "naive"
    assert [entry["choice"]["algorithm"] for entry in database.read(path)] == ["naive"]


def test_a_link_stays(path, tmp_path):
    """What it names is written, with the lock and the measurements beside it."""
    target = tmp_path / "elsewhere" / "real.json"
    path.symlink_to(target)
    for number in (1, 2):
        session.save(path, [{"entry": stays(number)}])
        assert path.is_symlink() and keys_of(target) == keys_of(path) == keys(*range(1, number + 1))
    names = {"real.json", "real.json.lock", "real.json.results.jsonl"}
    assert {file.name for file in target.parent.iterdir()} == names
    target.write_text("{")
    with pytest.warns(RuntimeWarning, match="was ignored"):
        database.merge(path, [stays(3)])
    assert path.is_symlink() and keys_of(path) == keys(3) and (target.parent / "real.json.ignored").is_file()


def test_a_file_keeps_its_mode(path):
    for mode in (0o600, 0o644):
        database.merge(path, [stays(1)])
        path.chmod(mode)
        database.merge(path, [stays(2)])
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_packs_that_no_entry_needs_are_dropped(path):
    def named():
        return json.loads(path.read_text())["packs"]

    database.merge(path, [{**stays(1, chooses("flash")), "packs": ["one.so"]}])
    database.merge(path, [{**stays(2, chooses("flash")), "packs": ["one.so", "two.so"]}, stays(3, chooses("flash"))])
    assert named() == ["one.so", "two.so"]
    database.merge(path, [stays(2)])
    assert named() == ["one.so"]
    # Of an entry that does not say what it needs it may be any of those that the file names.
    document = json.loads(path.read_text())
    for entry in document["entries"]:
        entry.pop("packs", None)
    path.write_text(json.dumps(document))
    assert all(entry["packs"] == (["one.so"] if entry["choice"] else []) for entry in database.read(path))
    database.merge(path, [stays(1), stays(3)])
    assert named() == []
    assert all("packs" not in entry for entry in json.loads(path.read_text())["entries"])


@pytest.mark.parametrize("content", [None, b"\x7fELF that is cut off"])
def test_lost_packs(path, shapes_file, capsys, monkeypatch, content):
    """Are said in what `hattn info` prints, and their entries are measured again, by a file that then needs none."""
    if content is not None:
        (path.parent / "lost.so").write_bytes(content)
    assert tune("--shapes", shapes_file) == 0
    first, _ = database.read(path)
    choice = chooses("flash")
    database.merge(path, [{**first, "choice": choice, "packs": ["lost.so", "gone.so"]}])
    monkeypatch.setenv("HATTN_TUNING", f"{path.parent}/./{path.name}")  # as a process that starts now
    with pytest.warns(RuntimeWarning, match="lost.so"):
        assert any("lost.so" in warning for warning in hattn.info()["warnings"])
        assert any("gone.so" in warning for warning in hattn.info()["warnings"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tune("--shapes", shapes_file, "--resume") == 0
    assert "1 of 1 problem measured" in capsys.readouterr().out
    assert database.read(path)[0]["choice"] != choice and json.loads(path.read_text())["packs"] == []
    assert tune("--shapes", shapes_file, "--resume") == 0
    assert "the database has all that is asked for already" in capsys.readouterr().out


def test_classes_that_are_one_to_the_library(path):
    """Whatever the order of their hooks, and whatever else they say."""
    entry = stays(1, chooses("flash"))
    entry["class"]["hooks"] = ["softcap", "bias"]
    other = json.loads(json.dumps(entry))
    other["class"].update(hooks=["bias", "softcap"], note="of last year")
    database.merge(path, [{**other, "gain": 1.5}])
    database.merge(path, [entry])
    assert [found["gain"] for found in database.read(path)] == [entry["gain"]]
    assert database.why_not_used(path) == ""


def test_zeros_behind_the_end(path, shapes_file, capsys):
    """As a file has that was not written to its end when the power failed."""
    database.merge(path, [stays(1, chooses("flash"))])
    with path.open("ab") as file:
        file.write(b"\0\0\0")
    assert re.search(r"it is damaged \(at byte \d+: it has a zero\)", database.why_not_used(path))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert tune("--shapes", shapes_file) == 0
    assert f"hattn: warning: {path}: was ignored: it is damaged" in capsys.readouterr().err
    assert database.why_not_used(path) == "" and len(database.read(path)) == 2


def test_packs_beside_a_file_whose_path_has_a_colon(tmp_path, shapes_file, capsys):
    """Are not left out without a word: the list of packs cannot name them."""
    path = tmp_path / "one:two" / "tuning.json"
    database.merge(path, [{**stays(1, chooses("flash")), "packs": ["some.so"]}])
    (path.parent / "some.so").write_bytes(b"kernels")
    before = path.read_bytes()
    assert tune("--shapes", shapes_file, "--output", path) == 1
    assert "some.so: has a colon, which separates packs in $HATTN_PACKS; rename it, or its folder" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_path_that_goes_back_from_a_linked_folder(tmp_path):
    """Is the one of the folder that the link is to."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "inner")
    path = tmp_path / "link" / ".." / "tuning.json"
    (tmp_path / "real" / "tuning.json").write_text("{")
    assert "it is damaged" in database.why_not_used(path)


@pytest.mark.parametrize("packs", [["a" * 5000], ["nul\0.so"], ["."]])
def test_names_that_no_pack_can_have(path, packs):
    database.merge(path, [{**stays(1, chooses("flash")), "packs": packs}])
    assert database.named_packs(path) == []


def test_packs_of_an_entry_that_are_no_list(path, capsys):
    database.merge(path, [stays(1, chooses("flash"))])
    path.write_text(path.read_text().replace('"invariant":', '"packs":3,"invariant":'))
    assert tune() == 1
    assert "an entry's packs is 3, but must be a list of names; remove it" in capsys.readouterr().err


def result(number, **members):
    """With what reports are made of."""
    candidate = {"refused": "", "plan": "flash_a", "speed": 1.0, "times": [{"seconds": 1.0}],
                 "choice": {"algorithm": "flash", "tile": None, "split_keys": 0}}
    return {"entry": {**stays(number), "gain": 1.0}, "title": str(number), "candidates": [candidate], "fastest": 0, "noise": 1.0,
            "replaces_default": False, "threads": 1, "work": [{"flops": 1, "bytes": 1}], **members}


def test_a_cut_off_line_takes_no_other_with_it(path):
    """Of the measurements: a process may be killed while it writes. One that another program wrote is left out."""
    session.save(path, [result(1)])
    with open(session.results_path(path), "a") as file:
        file.write('{"stamp": ')
    session.save(path, [result(2)])
    session.save(path, [{"entry": stays(3), "title": "3"}])
    assert [found["title"] for found in session.read_results(path)] == ["1", "2"]


@pytest.mark.parametrize("wrong", [{"noise": None}, {"candidates": []}, {"candidates": [{}]}, {"fastest": 7}, {"work": []}, {"title": 5}])
def test_measurements_that_no_report_can_show(path, wrong):
    session.save(path, [result(1), result(2, **wrong)])
    assert [found["title"] for found in session.read_results(path)] == ["1"]


def test_results_that_no_entry_came_of(path):
    """Are measurements of another file, as after its removal."""
    session.save(path, [result(1), result(2)])
    path.unlink()
    assert session.read_results(path) == []
    database.merge(path, [stays(2)])
    assert [found["title"] for found in session.read_results(path)] == ["2"]


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    database.merge(path, [stays(1)])
    before = path.read_text()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        database.merge(path, [stays(2)])
    assert path.read_text() == before
    assert {file.name for file in path.parent.iterdir()} == {"tuning.json", "tuning.json.lock"}
