"""Logprobs in OpenAI's two shapes, and what a whole answer with logprobs is built from."""

from dataclasses import dataclass, field
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


def text_logprobs(logprobs: list[Logprob]) -> dict[str, Any]:
    """The older shape of text completions."""
    return {
        "tokens": [one.token for one in logprobs],
        "token_logprobs": [one.logprob for one in logprobs],
        "top_logprobs": [{token: value for token, value, _ in one.top} for one in logprobs],
    }


@dataclass(slots=True)
class Transcript:
    """The counted logprobs of a request, by choice: they are in its slot, not in its result."""

    fold: SlotFold = field(default_factory=SlotFold)
    logprobs: dict[int, list[Logprob]] = field(default_factory=dict)

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
        return b""
