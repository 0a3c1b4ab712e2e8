"""What one attempt has said, and what of it is not written yet."""

import asyncio
from dataclasses import dataclass, field

from schemas.codec import Headers, headers_of
from schemas.ledger import Said
from schemas.tokens import Logprob
from schemas.work import Order
from workers.job import Prefix


@dataclass(slots=True, eq=False)
class Voice:
    """One choice of an attempt: all it said, and what of it is not written yet."""

    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish: str | None = None
    written: int = 0  # tokens in chunks, an earlier attempt's too
    logprobs: list[Logprob] = field(default_factory=list)  # of the unwritten tokens
    cached_tokens: int = 0

    def said(self, index: int) -> Said:
        return Said(index=index, ids=self.ids, pieces=self.pieces, finish_reason=self.finish)


class Speaker:
    """One attempt's place in its slot."""

    def __init__(self, order: Order, partition: int, first: dict[str, int]) -> None:
        ready = order.ready
        self.order = order
        self.key = order.request_id.encode()
        self.partition = partition  # of hr.tokens
        self.encoding = ready.encoding
        self.voices = [Voice() for _ in range(ready.n)]
        self.first = first  # stage → ms, told with the first chunk
        self.spoke = False
        self.cached_tokens = 0
        self.waiting = False  # for more tokens before the next chunk
        self.unacked = 0  # records of the slot on their way
        self.settled: asyncio.Future[None] | None = None  # somebody waits for the last ack
        self.fault: BaseException | None = None  # a chunk that can never be written
        self.cleared = (
            asyncio.Event()
        )  # a token of this attempt is kept, or it has left: no suspect
        self.chunk_headers = self.headers("chunk/1")

    def headers(self, kind: str, trace: Headers = ()) -> Headers:
        ready = self.order.ready
        return (
            headers_of(
                kind,
                encoding=self.encoding,
                request_id=self.order.request_id,
                attempt=self.order.attempt,
                tenant=ready.tenant,
                correlation_id=ready.correlation_id,
            )
            + trace
        )

    def resume(self, prefix: tuple[Prefix, ...]) -> None:
        """Go on behind what an earlier attempt said."""
        for voice, said in zip(self.voices, prefix, strict=False):
            voice.ids, voice.pieces, voice.finish = list(said.ids), list(said.pieces), said.finish
            voice.written = len(said.ids)

    @property
    def finished(self) -> bool:
        return all(voice.finish is not None for voice in self.voices)
