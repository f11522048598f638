"""What `hattn tune --shapes` reads of a config.json, whatever its class calls it."""

import json

import pytest

from hattn._tuning import shape_files


def read(tmp_path, **config):
    """The problems of a config."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return shape_files.read(file)


def described(problems):
    """Query heads, kv heads and head sizes, windows, hooks, and the longest sequence."""
    shapes = [shape for (shape,), _ in problems]
    (heads,) = {tuple(shape[name] for name in ("query_heads", "kv_heads", "key_dim", "value_dim")) for shape in shapes}
    hooks = {name for shape in shapes for name in ("softcap", "alibi") if shape.get(name)}
    windows = sorted({shape["window_left"] for shape in shapes if shape["kv_length"] == shapes[-1]["kv_length"]})
    return heads, windows, hooks, max(shape["kv_length"] for shape in shapes)


LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 2048}
FALCON = {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True}
GPT = {"n_head": 12, "n_embd": 768, "n_positions": 1024}
MLA = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "num_key_value_heads": 8, "head_dim": 64}


@pytest.mark.parametrize(
    "config, heads, windows, hooks, context",
    [
        pytest.param(LLAMA, (8, 8, 64, 64), [-1], set(), 2048, id="llama"),
        pytest.param({**LLAMA, **MLA, "v_head_dim": 128}, (8, 8, 192, 128), [-1], set(), 2048, id="deepseek_v3"),
        pytest.param({**LLAMA, **MLA}, (8, 8, 192, 64), [-1], set(), 2048, id="minicpm3"),
        pytest.param(FALCON, (71, 1, 64, 64), [-1], set(), 2048, id="falcon-7b"),
        pytest.param({**FALCON, "num_kv_heads": 71}, (71, 1, 64, 64), [-1], set(), 2048, id="falcon-7b, kv heads"),
        pytest.param(
            {**FALCON, "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8,
             "new_decoder_architecture": True},
            (128, 8, 64, 64), [-1], set(), 2048, id="falcon-40b",
        ),
        pytest.param(
            {**FALCON, "multi_query": False, "alibi": True}, (71, 71, 64, 64), [-1], {"alibi"}, 2048, id="falcon-rw",
        ),
        pytest.param(
            {"model_type": "gemma2", "hidden_size": 2304, "num_attention_heads": 8, "num_key_value_heads": 4,
             "head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096, "attn_logit_softcapping": 50.0},
            (8, 4, 256, 256), [-1, 4095], {"softcap"}, 8192, id="gemma2",
        ),
        pytest.param(
            {"model_type": "gemma2", "hidden_size": 2304, "attn_logit_softcapping": None, "sliding_window": None},
            (8, 4, 256, 256), [-1], set(), 8192, id="gemma2, by null and by default",
        ),
        pytest.param(GPT, (12, 12, 64, 64), [-1], set(), 1024, id="gpt2"),
        pytest.param({**GPT, "multi_query": True}, (12, 1, 64, 64), [-1], set(), 1024, id="gpt_bigcode"),
        pytest.param(
            {"model_type": "bloom", "n_head": 16, "hidden_size": 1024, "seq_length": 2048},
            (16, 16, 64, 64), [-1], {"alibi"}, 2048, id="bloom",
        ),
        pytest.param(
            {"model_type": "mpt", "n_heads": 8, "d_model": 1024, "max_seq_len": 1024, "attn_config": {"alibi": True}},
            (8, 8, 128, 128), [-1], {"alibi"}, 1024, id="mpt",
        ),
        pytest.param(
            {"model_type": "dbrx", "n_heads": 48, "d_model": 6144, "max_seq_len": 4096,
             "attn_config": {"kv_n_heads": 8}},
            (48, 8, 128, 128), [-1], set(), 4096, id="dbrx",
        ),
        pytest.param(
            {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "multi_query_attention": True,
             "multi_query_group_num": 2, "kv_channels": 128, "seq_length": 8192},
            (32, 2, 128, 128), [-1], set(), 8192, id="chatglm",
        ),
        pytest.param(
            {"text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "sliding_window": 1024}},
            (8, 4, 256, 256), [-1, 1023], set(), 32768, id="gemma3, mostly defaults",
        ),
        pytest.param(
            {"llm_config": {**LLAMA, "model_type": "qwen2", "num_key_value_heads": 2}},
            (8, 2, 64, 64), [-1], set(), 2048, id="internvl",
        ),
        pytest.param(
            {"thinker_config": {"text_config": {**LLAMA, "num_key_value_heads": 2}}},
            (8, 2, 64, 64), [-1], set(), 2048, id="qwen2.5-omni",
        ),
    ],
)  # fmt: skip
def test_names_of_classes(tmp_path, config, heads, windows, hooks, context):
    assert described(read(tmp_path, **config)) == (heads, windows, hooks, context)


def test_heads_of_layers(tmp_path):
    problems = read(tmp_path, num_query_heads=[12, 16], num_kv_heads=[3, 4], head_dim=64, max_context_length=2048)
    assert {(shape["query_heads"], shape["kv_heads"]) for (shape,), _ in problems} == {(12, 3), (16, 4)}


@pytest.mark.parametrize(
    "config, pattern",
    [
        ({"n_head": 12, "n_embd": 768}, r"has no max_position_embeddings, nor another name for it \(n_positions, "),
        ({"n_positions": 512}, "has no num_attention_heads, nor another name for it"),
        ({**GPT, "n_embd": None}, "has no hidden_size, nor another name for it"),
        ({**GPT, "n_embd": 770}, "n_embd is 770, but must be a multiple of the 12 query heads where .* head_dim"),
        ({**LLAMA, **MLA, "qk_rope_head_dim": None}, "has no qk_rope_head_dim; add it"),
        ({"text_config": {**LLAMA, "model_type": "new"}}, "config.json: text_config: has no num_key_value_heads"),
        ({**LLAMA, "model_type": "mixtral"}, "num_key_value_heads, .* of which model_type mixtral has a number of its"),
        ({**LLAMA, "model_type": "nemotron-nas", "num_key_value_heads": None}, "has no num_key_value_heads"),
        ({**LLAMA, "model_type": "dbrx", "attn_config": {}}, "num_key_value_heads, nor .*attn_config.kv_n_heads"),
        ({**LLAMA, "model_type": "mpt"}, r"has no alibi, nor another name for it \(attn_config.alibi\)"),
        ({**LLAMA, "model_type": "bert"}, r"is of an encoder \(model_type bert\)"),
        ({**LLAMA, "is_encoder_decoder": True}, "is of an encoder"),
        ({**LLAMA, "attn_logit_softcapping": "50"}, 'attn_logit_softcapping is "50", but must be a number from 0, or'),
        ({**LLAMA, "alibi": 1}, "alibi is 1, but must be true or false"),
    ],
)
def test_what_cannot_be_known(tmp_path, config, pattern):
    with pytest.raises(ValueError, match=pattern):
        read(tmp_path, **config)
