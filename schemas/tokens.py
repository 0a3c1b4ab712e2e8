"""Events of a request in its slot of `hr.tokens`: admitted, open, chunk, end.

The key is the request id; every record carries the header `tenant`.
"""

import msgspec

from .codec import decode


class Admitted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="admitted/1"):
    """Ingress let it pass."""

    request_id: str
    model: str
    lane: str
    prompt_tokens: int
    created: int  # ms
    kind: str = "chat"


class Open(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="open/1"):
    """An attempt begins; what lower attempts write after it is void."""

    request_id: str
    attempt: int
    worker: str
    epoch: str
    silent: bool = False  # written by one that only ends the request: shows no `started`


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """One token's raw logprob, with text so that an edge needs no vocabulary."""

    token: str
    logprob: float
    bytes: list[int] = []
    top: list[tuple[str, float, list[int]]] = []


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag_field="type", tag="chunk/1"):
    """Tokens of one choice; positional, 23 bytes instead of 45. The fold needs k and len(ids)."""

    k: int  # index of the first token in its choice
    ids: list[int]
    attempt: int
    choice: int = 0
    pieces: list[str] = []  # one per id
    finish: str | None = None  # stop | length, with the last chunk of the choice
    logprobs: list[Logprob] | None = None
    cached_tokens: int = 0  # prompt tokens from the prefix cache, with the first chunk
    first: dict[str, int] = {}  # with the first chunk of an attempt: stage → ms


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="end/1"):
    """The closing event. Where `tokens` > what was read, the rest is in the ledger at `output`."""

    request_id: str
    outcome: str
    tokens: int  # N, the sum over choices
    output: int  # offset of the counted output in hr.ledger


Event = Admitted | Open | Chunk | End


def decode_event(value: bytes | None) -> Event:
    """One record of `hr.tokens`. Raises Unreadable.

    A chunk is an array and the others are maps, which no msgspec union may mix: the first byte tells.
    """
    if value and (value[:1] == b"[" or 0x90 <= value[0] <= 0x9F or value[0] in (0xDC, 0xDD)):
        chunk: Chunk = decode(value, Chunk)
        return chunk
    event: Admitted | Open | End = decode(value, Admitted | Open | End)
    return event
