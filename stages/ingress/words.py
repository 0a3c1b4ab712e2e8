"""A vocabulary without a model, for models whose format is `null`: every word is one token.

Ids are a hash of the word, so prompts differ where their words do. Nothing ever turns ids back into
text: the null engine has words of its own.
"""

import re
import zlib
from collections.abc import Iterable

SIZE = 65_536  # ids
_TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m['role'] }} {{ m['content'] }}<|end|>{% endfor %}"
    "<|turn|>assistant"
)
_CONTROL = {"<|end|>": 0, "<|turn|>": 1}
_FIRST = 16  # ids below it are control tokens
_WORD = re.compile(r"\w+|[^\w\s]")
_CONTROL_TOKEN = re.compile("(" + "|".join(map(re.escape, _CONTROL)) + ")")


class Words:
    """What ingress needs of `kernels.vocabulary.Vocabulary`."""

    chat_template: str | None = _TEMPLATE
    control = tuple(_CONTROL)
    bos = ""
    eos = "<|end|>"
    prompt_start: tuple[int, ...] = ()

    def __len__(self) -> int:
        return SIZE

    def encode(self, text: str) -> list[int]:
        return [
            _FIRST + zlib.crc32(word.encode()) % (SIZE - _FIRST) for word in _WORD.findall(text)
        ]

    def encode_pieces(self, pieces: Iterable[tuple[str, bool]]) -> list[int]:
        ids: list[int] = []
        for text, is_template in pieces:
            for part in _CONTROL_TOKEN.split(text) if is_template else [text]:
                known = _CONTROL.get(part) if is_template else None
                ids.extend(self.encode(part) if known is None else [known])
        return ids
