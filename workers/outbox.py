"""What a worker writes: `open` and chunks to the request's slot, `output` or `released` to the ledger.

A chunk leaves at once when it is the attempt's first, has eight tokens or ends its choice; otherwise it
waits a moment for more. An outcome is written only after the attempt's last chunk is acknowledged.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from pipeline.log import Outgoing, Placed, RecordTooLarge, Writer
from pipeline.member import Member
from schemas.codec import Headers, encode, headers_of, tag_of
from schemas.errors import CODES, Error
from schemas.ids import partition_of
from schemas.ledger import Output, Released
from schemas.tokens import Chunk, Logprob, Open
from schemas.work import Order
from workers.job import Emission, TokenLogprob
from workers.speaker import Speaker

COALESCE = 0.03  # s that tokens wait for more: below what a reader sees as a stutter
COALESCE_TOKENS = 8

TokenText = Callable[[int], bytes]


class Outbox:
    def __init__(
        self, member: Member, tokens: Writer, ledger: Writer, token_text: TokenText
    ) -> None:
        self._member = member
        self._tokens = tokens
        self._ledger = ledger
        self._token_text = token_text
        self._loop = asyncio.get_running_loop()
        self._due: deque[tuple[float, Speaker]] = deque()  # a constant delay: in order of time
        self._timer: asyncio.TimerHandle | None = None

    def speaker(self, order: Order, taken: int) -> Speaker:
        partition = partition_of(order.request_id, self._member.topics.tokens_partitions)
        # of this attempt alone: a later one that takes its tokens over takes its times over too
        times = {name: ms for name, ms in order.entered.items() if name not in order.ready.entered}
        return Speaker(order, partition, {**times, "worker": taken})

    def open(
        self, speaker: Speaker, *, silent: bool, trace: Headers = ()
    ) -> "asyncio.Future[Placed]":
        order = speaker.order
        event = Open(
            request_id=order.request_id,
            attempt=order.attempt,
            worker=order.worker,
            epoch=order.epoch,
            silent=silent,
        )
        return self._slot(speaker, event, speaker.headers(tag_of(event), trace))

    def say(self, speaker: Speaker, emission: Emission) -> None:
        """Take new tokens of one choice."""
        voice = speaker.voices[emission.choice]
        voice.ids.extend(emission.ids)
        voice.pieces.extend(emission.pieces)
        if emission.logprobs:
            voice.logprobs.extend([_logprob(each, self._token_text) for each in emission.logprobs])
        if emission.cached_tokens:
            voice.cached_tokens = speaker.cached_tokens = emission.cached_tokens
        voice.finish = emission.finish
        unwritten = len(voice.ids) - voice.written
        if unwritten >= COALESCE_TOKENS or emission.finish is not None or not speaker.spoke:
            self._write(speaker, emission.choice)
        elif not speaker.waiting:
            speaker.waiting = True
            self._due.append((self._loop.time() + COALESCE, speaker))
            if self._timer is None:
                self._timer = self._loop.call_later(COALESCE, self._flush_due)

    def flush(self, speaker: Speaker) -> None:
        """Write whatever waits for company."""
        for choice, voice in enumerate(speaker.voices):
            if len(voice.ids) > voice.written:
                self._write(speaker, choice)

    async def settled(self, speaker: Speaker) -> None:
        """Every record of the slot is acknowledged. Raises what makes one impossible."""
        self.flush(speaker)
        if speaker.unacked:
            speaker.settled = self._loop.create_future()
            await speaker.settled
        if speaker.fault is not None:
            raise speaker.fault

    async def output(self, output: Output, trace: Headers = ()) -> Placed:
        """Write the outcome; one that is too large for a record ends as a failure that says so."""
        try:
            return await self._send_ledger(output, output.tenant, output.lane, trace)
        except RecordTooLarge as error:
            code = "result_too_large"
            said = Error(message=str(error), type=CODES[code].type, code=code)
            small = msgspec.structs.replace(
                output, outcome="failed", error=said, choices=[], metadata=None
            )
            return await self._send_ledger(small, output.tenant, output.lane, trace)

    async def released(self, order: Order, why: str, detail: str = "") -> Placed:
        released = Released(
            request_id=order.request_id,
            attempt=order.attempt,
            worker=order.worker,
            epoch=order.epoch,
            why=why,
            detail=detail[:500],
        )
        return await self._send_ledger(released, order.ready.tenant, order.ready.lane)

    async def unreadable(self, request_id: str, attempt: int, letter: Outgoing, why: str) -> None:
        """An order that nobody can read: kept for people, and given back."""
        member = self._member
        released = Released(
            request_id=request_id,
            attempt=attempt,
            worker=member.id,
            epoch=member.epoch,
            why="unreadable",
            detail=why[:500],
        )
        await self._ledger.send(letter)
        if request_id:  # else nobody can be told; its order is found missing by who sent it
            await self._send_ledger(released, None, None)

    def _write(self, speaker: Speaker, choice: int) -> None:
        voice = speaker.voices[choice]
        k = voice.written
        first: dict[str, int] = {}
        if not speaker.spoke:
            speaker.spoke = True
            speaker.first["first_token"] = self._member.clock.ms()
            first = speaker.first
        chunk = Chunk(
            k=k,
            ids=voice.ids[k:],
            attempt=speaker.order.attempt,
            choice=choice,
            pieces=voice.pieces[k:],
            finish=voice.finish,
            logprobs=voice.logprobs or None,
            cached_tokens=voice.cached_tokens,
            first=first,
        )
        voice.written, voice.logprobs, voice.cached_tokens = len(voice.ids), [], 0
        self._slot(speaker, chunk, speaker.chunk_headers)

    def _slot(
        self, speaker: Speaker, event: Open | Chunk, headers: Headers
    ) -> "asyncio.Future[Placed]":
        future = self._tokens.send(
            Outgoing(
                self._member.topics.tokens,
                encode(event, speaker.encoding),
                speaker.key,
                speaker.partition,
                headers,
            )
        )

        def acked(done: "asyncio.Future[Placed]") -> None:
            speaker.unacked -= 1
            if not done.cancelled() and (error := done.exception()) is not None:
                speaker.fault = error
            elif isinstance(event, Chunk):
                speaker.cleared.set()
            if not speaker.unacked and speaker.settled is not None and not speaker.settled.done():
                speaker.settled.set_result(None)

        speaker.unacked += 1
        future.add_done_callback(acked)
        return future

    def _flush_due(self) -> None:
        now = self._loop.time()
        while self._due and self._due[0][0] <= now:
            _, speaker = self._due.popleft()
            speaker.waiting = False
            self.flush(speaker)
        self._timer = self._loop.call_at(self._due[0][0], self._flush_due) if self._due else None

    def _send_ledger(
        self, record: Output | Released, tenant: str | None, lane: str | None, trace: Headers = ()
    ) -> "asyncio.Future[Placed]":
        extra: dict[str, Any] = {}
        if isinstance(record, Output):
            extra["correlation_id"] = record.correlation_id
        headers = headers_of(
            tag_of(record),
            request_id=record.request_id,
            attempt=record.attempt,
            tenant=tenant,
            lane=lane,
            **extra,
        )
        key = record.request_id.encode()
        return self._ledger.send(
            Outgoing(self._member.topics.ledger, encode(record), key, headers=headers + trace)
        )


def _logprob(each: TokenLogprob, token_text: TokenText) -> Logprob:
    raw = token_text(each.id)
    top = [
        (data.decode("utf-8", "replace"), logprob, list(data))
        for data, logprob in ((token_text(id), logprob) for id, logprob in each.top)
    ]
    return Logprob(
        token=raw.decode("utf-8", "replace"), logprob=each.logprob, bytes=list(raw), top=top
    )
