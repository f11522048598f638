"""What `hattn tune --shapes` reads, and the grids it measures without."""

import json
import math
import os
import threading

import pytest

from hattn import _hattn
from hattn._tuning import shape_files, shapes
from tuning_entries import tune


def test_shapes_of_a_config(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "max_position_embeddings": 2048}
        )
    )
    problems = shape_files.read(file)
    assert {(shape["query_heads"], shape["kv_heads"], shape["key_dim"]) for (shape,), _ in problems} == {(9, 3, 64)}
    lengths = {(shape["query_length"], shape["kv_length"]) for (shape,), _ in problems}
    assert (1, 2048) in lengths and (512, 2048) in lengths and max(keys for _, keys in lengths) == 2048


def of_config(tmp_path, **changes):
    """The problems of a config with some members changed."""
    config = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512, "max_position_embeddings": 4096}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, **changes}))
    return shape_files.read(file)


def windows_of(problems):
    """Of decoding, by keys."""
    shapes_of_decoding = [shape for (shape,), _ in problems if shape["query_length"] == 1]
    return sorted((shape["kv_length"], shape["window_left"]) for shape in shapes_of_decoding)


@pytest.mark.parametrize("context", [100, 2048, 9000, 32768, 131072])
def test_no_class_of_a_model_comes_twice(tmp_path, context):
    problems = of_config(tmp_path, max_position_embeddings=context)
    keys = [shape["kv_length"] for (shape,), _ in problems if shape["query_length"] == 1]
    assert max(keys) == min(context, 32768)
    assert len({round(math.log2(count)) for count in keys}) == len(keys)


def test_windows_of_a_config(tmp_path):
    windowed, whole = [(128, -1), (512, 499), (2048, 499), (4096, 499)], [(128, -1), (512, -1), (2048, -1), (4096, -1)]
    assert windows_of(of_config(tmp_path, sliding_window=500)) == windowed
    assert windows_of(of_config(tmp_path, sliding_window=500, use_sliding_window=False)) == whole
    for none in (None, 0, -1):
        assert windows_of(of_config(tmp_path, sliding_window=none)) == whole
    both = sorted({*windowed, *whole})
    layers = ["sliding_attention", "full_attention"]
    assert windows_of(of_config(tmp_path, sliding_window=500, layer_types=layers)) == both
    assert windows_of(of_config(tmp_path, sliding_window=500, sliding_window_pattern=6)) == both
    assert windows_of(of_config(tmp_path, sliding_window=500, layer_types=layers[1:])) == whole


def test_a_text_config_may_be_null(tmp_path):
    assert of_config(tmp_path, text_config=None) == of_config(tmp_path)


@pytest.mark.parametrize(
    "changes, pattern",
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0, but must be a whole number from 1 to "),
        ({"num_attention_heads": 8.5}, "num_attention_heads is 8.5, but must be a whole number"),
        ({"num_attention_heads": 1000}, "hidden_size is 512, but must be a multiple of the 1000 query heads"),
        ({"num_key_value_heads": 3}, "query_heads is 8, but must be a multiple of kv_heads, 3"),
        ({"head_dim": 65537}, "key_dim is 65537, but must be a whole number from 1 to 65536"),
        ({"max_position_embeddings": -5}, "max_position_embeddings is -5"),
        ({"max_position_embeddings": float("inf")}, "max_position_embeddings is Infinity"),
        ({"head_dim": "64"}, 'head_dim is "64"'),
        ({"sliding_window": -2}, "sliding_window is -2"),
        ({"sliding_window": [1] * 1000}, r"sliding_window is \[1, .{50,60}\.\.\., but"),
    ],
)
def test_bad_configs(tmp_path, changes, pattern):
    with pytest.raises(ValueError, match=f"config.json: {pattern}"):
        of_config(tmp_path, **changes)


def write_gguf(path, heads=8, kv_heads=2, reals=(), **numbers):
    """A model without tensors.

    Args:
        reals: names and values of members that are no whole numbers.
    """
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for name, real in reals:
        add = writer.add_bool if isinstance(real, bool) else writer.add_float32
        add(f"llama.{name}", real)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_embedding_length(512)
    writer.add_context_length(1024)
    for name, number in numbers.items():
        add = writer.add_array if isinstance(number, list) else writer.add_uint32
        add(f"llama.attention.{name}", number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def heads_of(problems):
    """Query heads, kv heads and head sizes."""
    names = ("query_heads", "kv_heads", "key_dim", "value_dim")
    return {tuple(shape[name] for name in names) for (shape,), _ in problems}


def test_shapes_of_a_gguf(tmp_path):
    problems = shape_files.read(write_gguf(tmp_path / "model.GGUF"))
    assert heads_of(problems) == {(8, 2, 64, 64)}
    assert max(shape["kv_length"] for (shape,), _ in problems) == 1024
    problems = shape_files.read(write_gguf(tmp_path / "model.gguf", key_length=96, value_length=80, sliding_window=256))
    assert heads_of(problems) == {(8, 2, 96, 80)}
    assert windows_of(problems) == [(128, -1), (512, -1), (512, 255), (1024, -1), (1024, 255)]


def test_layers_of_a_gguf_that_have_no_attention(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", kv_heads=[0, 2, 0, 4])
    assert heads_of(shape_files.read(path)) == {(8, 2, 64, 64), (8, 4, 64, 64)}
    with pytest.raises(ValueError, match="is a model without attention"):
        shape_files.read(write_gguf(tmp_path / "model.gguf", kv_heads=[0, 0]))
    with pytest.raises(ValueError, match="query heads of 2 layers, but kv heads of 3"):
        shape_files.read(write_gguf(tmp_path / "model.gguf", heads=[8, 8], kv_heads=[2, 2, 4]))


def test_windows_of_the_layers_of_a_gguf(tmp_path):
    def read(windows):
        return windows_of(shape_files.read(write_gguf(tmp_path / "model.gguf", sliding_window=windows)))

    assert read([0, 512, 512]) == [(128, -1), (512, -1), (1024, -1), (1024, 511)]
    assert read([512, 512]) == [(128, -1), (512, -1), (1024, 511)]
    assert read(0) == [(128, -1), (512, -1), (1024, -1)]


def test_hooks_of_a_gguf(tmp_path):
    """As ALiBi of MPT, and the softcap of Gemma 2."""
    reals = [("attention.max_alibi_bias", 8.0), ("attn_logit_softcapping", 50.0)]
    for given, expected in ((reals, True), ([(name, 0.0) for name, _ in reals], False), ([], False)):
        problems = shape_files.read(write_gguf(tmp_path / "model.gguf", reals=given))
        assert all(shape.get(name, False) == expected for (shape,), _ in problems for name in ("alibi", "softcap"))
    with pytest.raises(ValueError, match="model.gguf: is of an encoder"):
        shape_files.read(write_gguf(tmp_path / "model.gguf", reals=[("attention.causal", False)]))


def test_a_gguf_of_any_name(tmp_path):
    path = write_gguf(tmp_path / "model")
    assert heads_of(shape_files.read(path)) == {(8, 2, 64, 64)}


def test_damaged_ggufs(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    content = path.read_bytes()
    for cut in range(0, len(content.rstrip(b"\0")), 3):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="model.gguf: "):
            shape_files.read(path)
    path.write_bytes(b"GGML" + content[4:])
    with pytest.raises(ValueError, match="model.gguf: is no GGUF model"):
        shape_files.read(path)
    with pytest.raises(OSError, match="missing.gguf"):
        shape_files.read(tmp_path / "missing.gguf")


def test_titles_of_shapes_differ():
    """As far as the shapes do."""
    shape = {"query_heads": 2, "kv_heads": 1, "query_length": 1, "kv_length": 9, "key_dim": 8}
    changes = [
        {},
        {"value_dim": 16},
        {"batch": 3},
        {"causal": False},
        {"window_left": 4},
        *({name: True} for name in ("softcap", "bias", "alibi", "mask")),
        {"dtype": "int8"},
        {"device": "cuda:1"},
    ]
    titles = {shapes.title({**shape, **change}) for change in changes}
    assert len(titles) == len(changes) and "1 x 9, heads 2/1, size 8" in titles


@pytest.mark.parametrize(
    "content, pattern",
    [
        ("{}", "num_attention_heads"),
        ("[]", "must be a list of shapes"),
        ('[{"query_heads": 2}]', r"shapes\[0\]: has no query_length"),
        (
            '[{"query_heads": 2, "query_length": 1, "kv_length": 9, "key_dim": 8, "dtype": "float8"}]',
            r"shapes\[0\]: dtype is \"float8\", but must be one of float32, float16",
        ),
        ("nonsense", "is no JSON"),
        ("[" * 100000, "is no JSON"),
        ("[3]", r"shapes\[0\]: is 3, but must be an object"),
    ],
)
def test_bad_shapes(tmp_path, content, pattern):
    file = tmp_path / "shapes.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=pattern):
        shape_files.read(file)


@pytest.mark.parametrize(
    "name, value, pattern",
    [
        ("softcap", 30.0, "softcap is 30.0, but must be true or false"),
        ("causal", "yes", 'causal is "yes", but must be true or false'),
        ("mask", None, "mask is null"),
        ("kv_heads", None, "kv_heads is null, but must be a whole number from 1 to "),
        ("kv_heads", 3, "query_heads is 4, but must be a multiple of kv_heads, 3"),
        ("batch", "x" * 1000, r'batch is "x{50,60}\.\.\., but'),
        ("batch", True, "batch is true"),
        ("key_dim", 32.5, "key_dim is 32.5"),
        ("key_dim", 65537, "key_dim is 65537, but must be a whole number from 1 to 65536"),
        ("query_heads", 65537, "query_heads is 65537, but must be at most 65536 times kv_heads, 1"),
        ("kv_length", 10**30, "kv_length is 10{30}, but"),
        ("kv_length", 2**31 - 1, "takes .* MiB, but the machine has "),
        ("window_left", -2, "window_left is -2"),
        ("windows", 3, '"windows" is unknown; members are query_heads, '),
        ("device", "cpu", '"device" is unknown'),
    ],
)
def test_bad_members(tmp_path, name, value, pattern):
    shape = {"query_heads": 4, "query_length": 1, "kv_length": 300, "key_dim": 32}
    file = tmp_path / "shapes.json"
    one_kv_head = {"kv_heads": 1} if name == "query_heads" else {}
    file.write_text(json.dumps([shape, {**shape, "batch": 9, **one_kv_head, name: value}]))
    with pytest.raises(ValueError, match=rf"shapes\.json: shapes\[1\]: {pattern}"):
        shape_files.read(file)


def test_the_grid_covers_what_plans_may_ask_for():
    for problems in (shapes.quick(), shapes.everything()):
        assert all(shape["query_length"] <= shape["kv_length"] for problem in problems for shape in problem.shapes)
        titles = [problem.title for problem in problems]
        assert len(titles) == len(set(titles))
    assert {problem.shapes[0]["query_length"] for problem in shapes.quick()} == set(shapes.QUICK_ROWS)


def test_more_keys_than_the_last_class_has(path, tmp_path, capsys):
    """Are no problem of that class; those that rows see through a window count."""
    file = tmp_path / "shapes.json"
    shape = {"query_heads": 1, "query_length": 1, "kv_length": 92682, "key_dim": 16}
    file.write_text(json.dumps([shape, {**shape, "kv_length": 92681}, {**shape, "window_left": 9}]))
    for arguments in ([], ["--resume"]):
        assert tune("--shapes", file, "--dry-run", *arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "1 x 92682, heads 1/1, size 16: left out, of more keys than the last class has, 65536"
        assert lines[1:-1] == ["1 x 92681, heads 1/1, size 16", "1 x 92682, heads 1/1, size 16, window 9"]
    tuner = _hattn.Tuner(1)
    with pytest.raises(ValueError, match="kv_length: is 92682, but must be of a class"):
        tuner.tune(json.dumps({"shapes": [{**shape, "key_dim": 1}], "seconds": 0.01}))


def test_shapes_through_a_pipe(tmp_path):
    """What is read once cannot be read again."""
    pipe = tmp_path / "shapes.json"
    os.mkfifo(pipe)
    shape = {"query_heads": 2, "kv_heads": 2, "query_length": 40, "kv_length": 60, "key_dim": 16}
    writer = threading.Thread(target=lambda: pipe.write_text(json.dumps([shape])))
    writer.start()
    (problem,) = shape_files.read(pipe)
    writer.join()
    assert problem.shapes[0]["key_dim"] == 16
