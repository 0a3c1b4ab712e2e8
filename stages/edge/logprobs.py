"""Logprobs in OpenAI's two shapes, and what a whole answer with logprobs is built from."""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from schemas.folds import Effect, SlotFold
from schemas.tokens import Admitted, Chunk, Event, Logprob, Open


def chat_logprobs(logprobs: list[Logprob]) -> dict[str, Any]:
    content = [
        {
            "token": one.token,
            "logprob": one.logprob,
            "bytes": one.bytes,
            "top_logprobs": [
                {"token": token, "logprob": logprob, "bytes": raw}
                for token, logprob, raw in one.top
            ],
        }
        for one in logprobs
    ]
    return {"content": content, "refusal": None}


def offsets_of(pieces: list[str], start: int) -> list[int]:
    """Where each piece begins in the text of its choice, in characters, and where the next one would."""
    return list(accumulate(map(len, pieces), initial=start))


def text_logprobs(logprobs: list[Logprob], offsets: list[int]) -> dict[str, Any]:
    """The older shape of text completions; `offsets` as `offsets_of` gives them."""
    return {
        "text_offset": offsets[: len(logprobs)],
        "tokens": [one.token for one in logprobs],
        "token_logprobs": [one.logprob for one in logprobs],
        "top_logprobs": [{token: value for token, value, _ in one.top} for one in logprobs],
    }


@dataclass(slots=True)
class Transcript:
    """The counted logprobs of a request, by choice: they are in its slot, not in its result."""

    fold: SlotFold = field(default_factory=SlotFold)
    logprobs: dict[int, list[Logprob]] = field(default_factory=dict)
    pieces: dict[int, list[str]] = field(default_factory=dict)  # the text that goes with them

    def chat(self, choice: int) -> dict[str, Any]:
        return chat_logprobs(self.logprobs.get(choice, []))

    def text(self, choice: int) -> dict[str, Any]:
        offsets = offsets_of(self.pieces.get(choice, []), 0)
        return text_logprobs(self.logprobs.get(choice, []), offsets)

    def feed(self, offset: int, event: Event) -> bytes:
        """One record, as `Frames.feed`; there is nothing to send before the end."""
        if isinstance(event, Open):
            self.fold.open(event.attempt)
        elif isinstance(event, Admitted):
            self.fold.admitted()
        elif isinstance(event, Chunk):
            effect = self.fold.chunk(
                event.attempt, event.choice, event.k, len(event.ids), event.finish
            )
            if effect is Effect.TOKENS:
                self.logprobs.setdefault(event.choice, []).extend(event.logprobs or ())
                self.pieces.setdefault(event.choice, []).extend(event.pieces)
        return b""
