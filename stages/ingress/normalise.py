"""Text as a model was trained on it: one form of every character, plain spaces, `\\n` at line ends.

Code keeps every byte of its own: fenced blocks and inline code are left alone.
"""

import re
import unicodedata

from schemas.request import Message

# fenced blocks, closed or running to the end, and inline code; linear: no two branches overlap
_CODE = re.compile(r"(```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`)", re.DOTALL)
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "[\u200b\u2060\ufeff\u00ad]"
)  # not the joiners: scripts and emoji need them
_TRAILING = re.compile(r"[ \t]+(?=\n)")


def normalise(text: str) -> str:
    """NFKC (so every exotic space is a plain one), no invisible characters, no spaces at line ends."""
    if "`" not in text and "~~~" not in text:
        return _plain(text)
    parts = _CODE.split(text)  # odd ones are code
    return "".join([part if i % 2 else _plain(part) for i, part in enumerate(parts)])


def normalise_messages(messages: list[Message]) -> list[Message]:
    return [
        Message(role=each.role, content=normalise(each.content), name=each.name)
        for each in messages
    ]


def _plain(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    if not text.isprintable():  # line ends are not printable: a one-line text is done here
        text = _TRAILING.sub("", _LINE_ENDS.sub("\n", text))
    return text
