"""`hattn tune --deep`: kernels that are compiled for it, and what is kept of them."""

import json
import re

import numpy as np
import pytest

import hattn
from hattn import _hattn, cli
from hattn._tuning import command, database, deep, measuring, session, shapes

SHAPE = {"query_heads": 2, "kv_heads": 2, "query_length": 40, "kv_length": 60, "key_dim": 16}


def arrays(rng):
    """q, k and v of the shape."""
    sizes = [(1, 2, SHAPE["query_length"], 16), (1, 2, SHAPE["kv_length"], 16), (1, 2, SHAPE["kv_length"], 16)]
    return [rng.standard_normal(size, np.float32) for size in sizes]


def test_candidates_are_new(kernelgen):
    names = deep.candidate_names(kernelgen)
    known = {kernel["name"] for kernel in hattn.info()["kernels"]}
    assert len(names) > 10 and not known & set(names)
    assert all(name.startswith(deep.KINDS) for name in names)


def rows_of(name):
    return int(re.search(r"_r(\d+)k", name)[1])


def test_winners_outlive_the_others(kernelgen, rng, tmp_path, monkeypatch):
    """From candidates in a pack that is gone afterwards to a database with a pack of its own."""
    # Of the largest tile that so few rows may fill.
    name = [name for name in deep.candidate_names(kernelgen) if name.startswith("flash") and rows_of(name) <= 64][-1]
    deep.compile_pack(kernelgen, tmp_path / "candidates.so", [name])
    with deep.loaded(tmp_path / "candidates.so"):
        tuner = _hattn.Tuner(1)
        (result,) = session.run([shapes.Problem([SHAPE])], None, tuner, session.Options(0.2, most_candidates=40))
    places = [at for at, row in enumerate(result["candidates"]) if row["plan"].startswith(f"{name}/")]
    assert places and not result["candidates"][places[0]]["refused"]
    # Whatever was fastest: as if it had been this one.
    choice = result["candidates"][places[0]]["choice"]
    result.update(fastest=places[0], replaces_default=True, entry={**result["entry"], "choice": choice, "gain": 1.3})
    (tmp_path / "candidates.so").unlink()

    path = tmp_path / "tuning.json"
    names = deep.winners([result], [name])
    assert name in names and any(other.endswith("_mask") for other in names)
    packs = deep.keep(kernelgen, path, [name])  # without hooks, to be quick
    session.save(path, [result], packs)
    assert packs == deep.keep(kernelgen, path, [name])

    # It stays a candidate where nothing is compiled, and a pack that it won from is named.
    (tmp_path / "shapes.json").write_text(json.dumps([SHAPE]))
    arguments = ["--threads", "1", "--budget", "0.3s", "--shapes", tmp_path / "shapes.json", "--output", path]
    monkeypatch.setattr(command, "QUICK_CANDIDATES", 40)
    assert cli.main(["tune", *map(str, arguments)]) == 0
    (again,) = session.read_results(path)
    assert any(row["plan"].startswith(f"{name}/") for row in again["candidates"])
    with deep.loaded(tmp_path / packs[0]):
        assert deep.packs_of(result, path) == packs
        assert deep.packs_of(result, tmp_path / "other" / "tuning.json") == [str(tmp_path / packs[0])]
    session.save(path, [result], packs)

    q, k, v = arrays(rng)
    usual = hattn.attention(q, k, v, causal=True)
    monkeypatch.setenv("HATTN_TUNING", str(path))
    plan = hattn.explain(q, k, v, causal=True)
    assert (plan["kernel"], plan["decided_by"], plan["pack"]) == (name, "machine", str(tmp_path / packs[0]))
    overflows = hattn.info()["scratch_overflows"]
    np.testing.assert_allclose(hattn.attention(q, k, v, causal=True), usual, rtol=1e-5, atol=1e-6)
    assert hattn.info()["scratch_overflows"] == overflows, "the workspace allows for kernels of packs"

    # The file without its pack: one warning, and the default.
    (tmp_path / packs[0]).rename(tmp_path / "elsewhere.so")
    monkeypatch.setenv("HATTN_TUNING", f"{tmp_path}/./tuning.json")
    with pytest.warns(RuntimeWarning, match="kernel pack"):
        plan = hattn.explain(q, k, v, causal=True)
    assert plan["decided_by"] != "machine" and plan["pack"] is None


def test_progress_is_by_the_kernel(kernelgen, tmp_path):
    """While a pack of the CPU's kernels is compiled, which is in one file at the end."""
    names = [name for name in deep.candidate_names(kernelgen) if name.startswith("flash")][:4]
    told = []
    assert deep.compile_pack(kernelgen, tmp_path / "some.so", names, told.append) == []
    assert told == sorted(told) and set(told) & {1, 2, 3} and max(told) <= 4


@pytest.mark.parametrize("failure", [OSError("No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("closed", [False, True])
def test_winners_that_cannot_be_compiled(tmp_path, monkeypatch, failure, closed):
    """What was measured is stored with the pack that it was measured with, though nobody may read what is printed."""

    class Store:
        path, stored = tmp_path / "tuning.json", []

        def add(self, results, packs):
            self.stored.append((results, packs))

    def fails(*arguments):
        raise failure

    (tmp_path / "candidates.so").write_bytes(b"kernels")
    monkeypatch.setattr(deep, "winners", lambda *arguments: ["flash_winner"])
    monkeypatch.setattr(deep, "compile_pack", fails)
    if closed:
        monkeypatch.setattr("builtins.print", lambda *_, **__: (_ for _ in ()).throw(BrokenPipeError()))
    with pytest.raises(BrokenPipeError if closed else type(failure)):
        measuring._keep_winners(None, tmp_path / "candidates.so", [], ["a result"], Store(), "cpu")
    ((results, (pack,)),) = Store.stored
    assert results == ["a result"] and (tmp_path / pack).read_bytes() == b"kernels"


def test_without_winners_nothing_is_compiled(tmp_path):
    assert deep.keep(tmp_path / "no-generator", tmp_path / "tuning.json", []) == []
    assert list(tmp_path.iterdir()) == []


def test_the_command(kernelgen, tmp_path, monkeypatch, capsys):
    names = deep.candidate_names(kernelgen)[:2]
    monkeypatch.setattr(deep, "candidate_names", lambda *_: names)
    (tmp_path / "shapes.json").write_text(json.dumps([SHAPE]))
    path = tmp_path / "tuning.json"
    arguments = ["--deep", "--threads", "1", "--budget", "0.3s", "--shapes", tmp_path / "shapes.json", "--output", path]
    assert cli.main(["tune", *map(str, arguments)]) == 0
    assert "compiling 2 kernels" in capsys.readouterr().out
    assert len(database.read(path)) == 1


@pytest.mark.parametrize("end", [KeyboardInterrupt, OSError])
def test_what_is_measured_is_kept(kernelgen, tmp_path, monkeypatch, capsys, end):
    """What no compiled kernel won is there already, and what one won is compiled, whatever ends the measuring."""
    names = [name for name in deep.candidate_names(kernelgen) if name.startswith("naive")][:1]
    monkeypatch.setattr(deep, "candidate_names", lambda *_: names)
    run = session.run

    def interrupted(*arguments):
        yield next(run(*arguments))
        raise end

    monkeypatch.setattr(session, "run", interrupted)
    (tmp_path / "shapes.json").write_text(json.dumps([SHAPE, {**SHAPE, "key_dim": 64}]))
    path = tmp_path / "tuning.json"
    arguments = ["--deep", "--threads", "1", "--budget", "0.3s", "--shapes", tmp_path / "shapes.json", "--output", path]
    interrupted = end is KeyboardInterrupt
    assert cli.main(["tune", *map(str, arguments)]) == (measuring.INTERRUPTED if interrupted else 1)
    assert ("1 of 2 problems measured" in capsys.readouterr().out) == interrupted
    (entry,) = database.read(path)
    assert entry["deep"] is True


def test_resuming_compiles_nothing_for_nothing(kernelgen, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deep, "candidate_names", lambda *_: pytest.fail("asked for candidates"))
    monkeypatch.setattr(session, "remaining", lambda *_: [])
    path = tmp_path / "tuning.json"
    assert cli.main(["tune", "--deep", "--resume", "--threads", "1", "--output", str(path)]) == 0
    said = capsys.readouterr()
    assert said.out == f"the database has all that is asked for already, {len(shapes.quick())} problems: {path}\n" and said.err == ""


def test_why_none_of_the_candidates_compiles(tmp_path):
    kernelgen = tmp_path / "hattn-kernelgen"
    kernelgen.write_text("#!/bin/sh\necho 'flash_a: too many registers'\necho 'no kernel is left' >&2\nexit 1\n")
    kernelgen.chmod(0o755)
    with pytest.raises(ValueError, match="--deep: hattn-kernelgen try-pack: no kernel is left\nflash_a: too many registers"):
        deep.compile_pack(kernelgen, tmp_path / "some.so", ["flash_a"])


def test_without_a_generator(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HATTN_KERNELGEN", str(tmp_path / "none"))
    assert cli.main(["tune", "--deep", "--output", str(tmp_path / "tuning.json")]) == 1
    assert "none does not exist" in capsys.readouterr().err
