"""Text to token ids and back: the model's byte-level BPE, built from the GGUF vocabulary, and its chat template."""
import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from . import InputError

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Chat:
    def __init__(self, model):
        kinds = model.metadata("tokenizer.ggml.model"), model.metadata("tokenizer.ggml.pre")
        if kinds != ("gpt2", "smollm"):
            raise InputError(f"{model.path}: tokenizer is {kinds}, but this example knows ('gpt2', 'smollm')")
        tokens = model.metadata("tokenizer.ggml.tokens")
        types = model.metadata("tokenizer.ggml.token_type")
        self._tokenizer = build_tokenizer(tokens, types, model.metadata("tokenizer.ggml.merges"))
        self._start = model.metadata("tokenizer.ggml.bos_token_id")
        self.end = model.metadata("tokenizer.ggml.eos_token_id")  # closes every message: generation stops here

    def encode(self, text):
        """Token ids of plain text. Names of control tokens inside it are text, too."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids):
        """Text of token ids, without the control tokens."""
        return self._tokenizer.decode(ids)

    def prompt(self, instruction):
        """Ids of a conversation in which the user says `instruction` and the assistant is about to answer."""
        newline = self.encode("\n")
        ids = []
        for role, content in (("system", SYSTEM), ("user", instruction)):
            ids += [self._start, *self.encode(f"{role}\n{content}"), self.end, *newline]
        return ids + [self._start, *self.encode("assistant\n")]


def build_tokenizer(tokens, types, merges):
    """tokens in id order, their gguf.TokenType values, and merges as "left right" lines, best first."""
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)},
                                     merges=[tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),  # "2024" is four tokens
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL])
    tokenizer.encode_special_tokens = True  # a document that spells "<|im_end|>" must not end the message
    return tokenizer
