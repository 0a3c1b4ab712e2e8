"""How text is cut before byte-pair encoding, by the name that a GGUF file gives it.

A wrong cut is a silent loss of quality, so an unknown name is refused, never guessed. The patterns
are facts of the models (their published tokenizer.json); names are GGUF's `tokenizer.ggml.pre`.
"""

from collections.abc import Callable

from tokenizers import Regex, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(pattern: str) -> PreTokenizer:
    cut = Split(Regex(pattern), behavior="isolated")
    return Sequence([cut, ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_gpt2() -> PreTokenizer:
    return Sequence([Digits(individual_digits=True), _gpt2()])


# name -> (how to cut, whether a word that is a token needs no merges)
PRE_TOKENIZERS: dict[str, tuple[Callable[[], pre_tokenizers.PreTokenizer], bool]] = {
    "gpt-2": (_gpt2, False),
    "smollm": (_digits_gpt2, False),
    "llama-bpe": (lambda: _split(_LLAMA3), True),
    "smaug-bpe": (lambda: _split(_LLAMA3), True),
    "qwen2": (lambda: _split(_QWEN2), False),
    "tekken": (lambda: _split(_TEKKEN), True),
}
