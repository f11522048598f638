"""Runs SmolLM2-135M-Instruct on a prompt with hattn doing all attention, and checks the result.

The prompt is continued over contiguous key-value caches, over paged ones, which must give the same tokens, and over caches
of fewer bits, of which the report says how far their logits are off. The logits are held against a run in float64.

    python examples/smollm2/demo.py [--tokens N] [--prompt-file FILE] [--threads N] [--no-reference]

Exit status: 0; 1 if pages give other tokens, or if the logits are further than TOLERANCE from the reference; 2 for bad
input or missing packages.
"""
import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this folder is the package `smollm2`
from smollm2 import InputError  # noqa: E402 # the modules over NumPy come in after its threads are configured

TOLERANCE = 1e-3  # largest allowed difference of any logit; the logits' standard deviation is about 6
PAGE_SIZE = 16    # keys per page of the paged caches
SMALL_TYPES = ("bfloat16", "int8")  # of keys and values in smaller caches


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but is {value}")
    return value


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description="Run a language model whose attention is computed by hattn.")
    parser.add_argument("--tokens", type=positive, default=48, help="most tokens to generate (default: %(default)s)")
    parser.add_argument("--prompt-file", type=Path, default=Path(__file__).with_name("prompt.txt"),
                        help="UTF-8 text the user says to the model (default: a story to summarise)")
    parser.add_argument("--threads", type=positive, default=None,
                        help="threads of attention and of NumPy's matrix products (default: one per core)")
    parser.add_argument("--no-reference", action="store_true", help="skip the float64 run")
    return parser.parse_args(arguments)


def configure_numpy_threads(threads):
    """Settings of NumPy's OpenBLAS, which reads them once, when NumPy is first imported."""
    # Idle BLAS workers spin for 2^n cycles before they sleep, by default for over 100 ms (measured), longer than a
    # layer takes: they would hold a core each while attention is computed.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "14")
    if threads is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = str(threads)


def read_prompt(path):
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompt-file: cannot read {path}: {error}") from error
    if not text:
        raise InputError(f"--prompt-file: {path} holds no text")
    return text


def check_length(prompt, tokens, capacity):
    if len(prompt) + tokens > capacity:
        raise InputError(f"--prompt-file: {len(prompt)} tokens of prompt and --tokens {tokens} make "
                         f"{len(prompt) + tokens}, but the model's context holds {capacity}")


def run_model(decoder, prompt, tokens, end):
    """Generates and measures: returns the ids, the logits of each step, and (tokens, seconds, attention seconds) of the
    prefill and of the decoding. The first token belongs to the prefill.
    """
    start = time.perf_counter()
    ids, logits, prefill = [], [], None
    for token, row in decoder.generate(prompt, tokens, end):
        ids.append(token)
        logits.append(row)
        if prefill is None:
            prefill = (len(prompt), time.perf_counter() - start, decoder.attention_seconds)
    seconds, attention = time.perf_counter() - start - prefill[1], decoder.attention_seconds - prefill[2]
    return ids, logits, prefill, (len(ids) - 1, seconds, attention)


def describe_phase(name, tokens, seconds, attention):
    if tokens == 0:
        return f"{name:<10} no tokens"
    return (f"{name:<10} {tokens} tokens in {seconds:.2f} s: {tokens / seconds:.1f} tokens/s, "
            f"{100 * attention / seconds:.1f} % of the time in attention")


def compare_storage(contiguous, paged):
    """Both are what run_model() returns. Returns the report line and whether the ids are the same."""
    (ids, logits, *_), (paged_ids, paged_logits, *phases) = contiguous, paged
    equal = sum(a == b for a, b in zip(ids, paged_ids))
    bits = all(a.tobytes() == b.tobytes() for a, b in zip(logits, paged_logits))
    seconds = sum(phase[1] for phase in phases)
    line = (f"{'paged':<10} pages of {PAGE_SIZE} keys, {seconds:.2f} s in all: {equal} of {len(ids)} ids equal to "
            f"contiguous storage, logits {'the same to the bit' if bits else 'differ'}")
    return line, ids == paged_ids


def compare_type(dtype, full, small):
    """Both are what run_model() returns. The report line: logits are compared as long as the contexts are the same."""
    import numpy as np

    (ids, logits, *_), (small_ids, small_logits, *phases) = full, small
    same = next((n for n, (a, b) in enumerate(zip(ids, small_ids)) if a != b), min(len(ids), len(small_ids)))
    steps = min(same + 1, len(logits), len(small_logits))
    error = max(float(np.abs(a - b).max()) for a, b in zip(logits[:steps], small_logits[:steps]))
    differs = f"first differing token at {same}" if same < len(ids) else "no token differs"
    return (f"{dtype:<10} caches, {sum(phase[1] for phase in phases):.2f} s in all: largest logit difference {error:.1e} "
            f"to float32 caches, {differs} of {len(ids)}")


def compare(model, prompt, ids, logits):
    """Runs the reference over the prompt and the generated ids; returns the report line and whether it is good."""
    import numpy as np

    from smollm2 import reference

    # One run serves every step: row n belongs to the prompt followed by the first n generated tokens.
    last = len(prompt) - 1
    start = time.perf_counter()
    expected = reference.logits(model, prompt + ids[:-1], range(last, last + len(ids)))
    seconds = time.perf_counter() - start
    difference = np.abs(np.stack(logits) - expected).max(axis=1)
    equal = int((expected.argmax(axis=1) == ids).sum())
    good = bool(difference.max() <= TOLERANCE)
    line = (f"{'reference':<10} float64, {seconds:.1f} s: largest logit difference {difference[0]:.1e} after the "
            f"prompt, {difference.max():.1e} over all steps (limit {TOLERANCE:.0e}); {equal} of {len(ids)} ids equal")
    return line, good


def run(options):
    from smollm2.attention import HattnAttention, version
    from smollm2.chat import Chat
    from smollm2.model import Decoder, Model, Weights

    text = read_prompt(options.prompt_file)
    model = Model()
    config, chat = model.config, Chat(model)
    prompt = chat.prompt(text)
    check_length(prompt, options.tokens, config.context_length)
    capacity = len(prompt) + options.tokens
    attention = HattnAttention(config, capacity, options.threads)
    print(f"{'model':<10} {model.path.stem}: {config.layers} layers, {config.query_heads} query heads over "
          f"{config.kv_heads} kv heads of {config.head_dim}")
    print(f"{'hattn':<10} {version()}: prefill by {attention.explain(len(prompt), len(prompt))}; "
          f"decode by {attention.explain(1, len(prompt) + 1)}")
    print(f"{'prompt':<10} {len(prompt)} tokens, from {options.prompt_file.name}", flush=True)
    weights = Weights.load(model)

    def answer(attention):
        return run_model(Decoder(config, weights, attention), prompt, options.tokens, chat.end)

    contiguous = ids, logits, prefill, decode = answer(attention)
    print(f"\n{chat.decode(ids).strip()}{'' if ids[-1] == chat.end else ' [...]'}\n")
    print(describe_phase("prefill", *prefill))
    print(describe_phase("decode", *decode), flush=True)
    checks = [compare_storage(contiguous, answer(HattnAttention(config, capacity, options.threads, PAGE_SIZE)))]
    print(checks[0][0], flush=True)
    for dtype in SMALL_TYPES:
        small = HattnAttention(config, capacity, options.threads, dtype=dtype)
        print(compare_type(dtype, contiguous, answer(small)), flush=True)
    if not options.no_reference:
        checks.append(compare(model, prompt, ids, logits))
        print(checks[1][0])
    return 0 if all(good for _, good in checks) else 1


def main(arguments=None):
    options = parse_arguments(arguments)
    configure_numpy_threads(options.threads)
    try:
        return run(options)
    except ImportError as error:
        message = f"{error}; the demo needs hattn, numpy, gguf and tokenizers (./dev demo installs them)"
    except InputError as error:
        message = str(error)
    print(f"demo.py: error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
