"""What `hattn tune --shapes` reads, and the grids it measures without."""

import json

import pytest

from hattn._tuning import shapes


def test_shapes_of_a_config(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "max_position_embeddings": 2048}
        )
    )
    problems = shapes.read(file)
    assert {(shape["query_heads"], shape["kv_heads"], shape["key_dim"]) for ((shape,),) in problems} == {(9, 3, 64)}
    lengths = {(shape["query_length"], shape["kv_length"]) for ((shape,),) in problems}
    assert (1, 2048) in lengths and (512, 2048) in lengths and max(keys for _, keys in lengths) == 2048


def test_shapes_of_a_gguf(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(512)
    writer.add_context_length(1024)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    problems = shapes.read(tmp_path / "model.gguf")
    assert {(shape["query_heads"], shape["kv_heads"], shape["key_dim"]) for ((shape,),) in problems} == {(8, 2, 64)}
    assert max(shape["kv_length"] for ((shape,),) in problems) == 1024


@pytest.mark.parametrize(
    "content, pattern",
    [
        ("{}", "num_attention_heads"),
        ("[]", "must be a list of shapes"),
        ('[{"query_heads": 2}]', r"shapes\[0\] has no whole number query_length"),
        (
            '[{"query_heads": 2, "query_length": 1, "kv_length": 9, "key_dim": 8, "dtype": "float8"}]',
            r"shapes\[0\]: dtype is float8, but must be one of float32, float16",
        ),
        ("nonsense", "is no JSON"),
    ],
)
def test_bad_shapes(tmp_path, content, pattern):
    file = tmp_path / "shapes.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=pattern):
        shapes.read(file)


def test_the_grid_covers_what_plans_may_ask_for():
    for problems in (shapes.quick(), shapes.everything()):
        assert all(shape["query_length"] <= shape["kv_length"] for problem in problems for shape in problem.shapes)
        titles = [problem.title for problem in problems]
        assert len(titles) == len(set(titles))
    assert {problem.shapes[0]["query_length"] for problem in shapes.quick()} == set(shapes.QUICK_ROWS)
