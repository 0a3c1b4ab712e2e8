"""Slot records in, SSE frames out.

Pure: every byte of a frame with an id is a function of the log alone, so that a stream cut on one edge
joins on another byte for byte. A frame's id is `<offset>-<seq>` (seq = next token index), with `.<j>`
for the further frames made from the same record.
"""

from dataclasses import dataclass, field

import msgspec

from schemas.folds import Effect, SlotFold
from schemas.ids import birth
from schemas.ledger import Output
from schemas.result import Result
from schemas.tokens import Admitted, Chunk, End, Event, Logprob, Open

from .logprobs import chat_logprobs, offsets_of, text_logprobs
from .outcome import error_body, error_of, usage_body

NATIVE, OPENAI = "native", "openai"

_json = msgspec.json.encode
Body = tuple[str, bytes]  # event name of the native framing, its data


@dataclass(slots=True)
class Frames:
    """What one reader of one request sees. Feed it every slot record of the request in offset order.

    `after`: frames up to this (offset, j) were seen, and `cursor_seq` is what the reader believes to be
    their seq; `matched` once that proved true. `floor`: tokens below this index were seen.
    """

    request_id: str
    model: str
    kind: str  # chat | text
    framing: str = OPENAI
    usage: bool | None = None  # whether a usage chunk was asked for; None: its result says
    fold: SlotFold = field(default_factory=SlotFold)
    after: tuple[int, int] = (-1, 0)
    cursor_seq: int = -1
    matched: bool = False
    hole: bool = False  # the slot lacks tokens: they may be older than what it keeps
    floor: int = 0
    lengths: dict[int, int] = field(default_factory=dict)  # choice → characters said with logprobs
    _head: bytes = b""

    def __post_init__(self) -> None:
        self._set_head()

    def _set_head(self) -> None:
        name = "chat.completion.chunk" if self.kind == "chat" else "text_completion"
        created = birth(self.request_id) // 1000
        head = {"id": self.request_id, "object": name, "created": created, "model": self.model}
        self._head = _json(head)[:-1]

    def feed(self, offset: int, event: Event) -> bytes:
        """The frames of one record; an `End` closes through `close`, which needs the result."""
        if isinstance(event, Chunk):
            said = self.fold.seq
            bodies = self._chunk(event, said)
        elif isinstance(event, Open):
            bodies = self._open(event)
        elif isinstance(event, Admitted):
            bodies = self._admitted(event)
        else:
            return b""
        return self._frames(offset, bodies)

    def close(self, offset: int, end: End, result: Result | None, output: Output | None) -> bytes:
        """The last frames. `result` where `needs_result` says so; `output`: the ledger record at
        `end.output`, where `lacks_rest` does."""
        bodies = [] if output is None else self._rest(output)
        if self.fold.end() is not Effect.CLOSED:
            return b""
        return self._frames(offset, bodies + self._closing(result), max(end.tokens, self.fold.seq))

    def close_without_slot(self, result: Result, output: Output | None) -> bytes:
        """The same from `hr.results` alone, after the slot's retention: frames without ids."""
        bodies = [] if output is None else self._rest(output)
        self.fold.end()
        return b"".join(self._frame(b"", body) for body in bodies + self._closing(result))

    def needs_result(self, end: End) -> bool:
        """Whether its last frames say what only the result knows."""
        return self.framing == NATIVE or self.usage is not False or end.outcome != "completed"

    def lacks_rest(self, end: End) -> bool:
        """Whether the output said more than the slot: cached answers have no chunks at all."""
        unfinished = end.outcome == "completed" and not self.fold.finishes
        return end.tokens > self.fold.seq or unfinished

    def _admitted(self, event: Admitted) -> list[Body]:
        if (event.model, event.kind) != (self.model, self.kind):
            self.model, self.kind = event.model, event.kind
            self._set_head()
        if self.fold.admitted() is not Effect.ADMITTED or self.framing == OPENAI:
            return []
        queued = {"id": self.request_id, "model": event.model, "lane": event.lane}
        return [("queued", _json(queued | {"prompt_tokens": event.prompt_tokens}))]

    def _open(self, event: Open) -> list[Body]:
        started = self.fold.open(event.attempt) is Effect.STARTED
        if not started or event.silent or self.framing == OPENAI:
            return []
        return [("started", b'{"attempt":%d}' % event.attempt)]

    def _chunk(self, chunk: Chunk, said: int) -> list[Body]:
        effect = self.fold.chunk(chunk.attempt, chunk.choice, chunk.k, len(chunk.ids), chunk.finish)
        if effect is not Effect.TOKENS:
            self.hole = self.hole or effect is Effect.HOLE
            return []
        bodies: list[Body] = []
        if chunk.k == 0 and self.kind == "chat" and said >= self.floor:
            bodies.append(self._delta(chunk.choice, b'{"role":"assistant","content":""}'))
        if chunk.ids:
            bodies.append(self._content(chunk, max(0, self.floor - said)))
        if chunk.finish is not None:
            bodies.append(self._finish(chunk.choice, chunk.finish))
        return bodies

    def _rest(self, output: Output) -> list[Body]:
        """What the output says beyond the slot, one content delta a choice."""
        bodies: list[Body] = []
        for said in output.choices:
            e = self.fold.ends.get(said.index, 0)
            finish = None if said.index in self.fold.finishes else said.finish_reason
            rest = Chunk(
                k=e,
                ids=said.ids[e:],
                attempt=self.fold.attempt,
                choice=said.index,
                pieces=said.pieces[e:],
                finish=finish,
            )
            bodies += self._chunk(rest, self.fold.seq)
        return bodies

    def _closing(self, result: Result | None) -> list[Body]:
        if result is None:
            return [("", b""), ("", b"[DONE]")]
        if self.framing == NATIVE:
            return [("done", _json(result))]
        if result.outcome != "completed":
            return [("", error_body(error_of(result))), ("", b"[DONE]")]
        # its number is taken even where it is not shown, so that [DONE] has one id for everybody
        shown = asked_usage(result) if self.usage is None else self.usage
        usage = {"choices": [], "usage": usage_body(result.usage), "timings": result.timings}
        body = self._head + b"," + _json(usage)[1:] if shown else b""
        return [("", body), ("", b"[DONE]")]

    def _content(self, chunk: Chunk, seen: int) -> Body:
        """The text of a record without its first `seen` tokens; empty data: all of it was seen."""
        offsets: list[int] = []
        if chunk.logprobs is not None and self.kind == "text":
            offsets = offsets_of(chunk.pieces, self.lengths.get(chunk.choice, 0))
            self.lengths[chunk.choice] = offsets[-1]
        if seen >= len(chunk.ids):
            return ("chunk", b"")
        text = _json("".join(chunk.pieces[seen:]))
        logprobs = chunk.logprobs[seen:] if chunk.logprobs is not None else None
        if self.kind == "chat":
            return self._delta(chunk.choice, b'{"content":' + text + b"}", logprobs)
        shown = b"null" if logprobs is None else _json(text_logprobs(logprobs, offsets[seen:]))
        body = (self._head, b',"choices":[{"index":%d,"text":' % chunk.choice, text)
        return ("chunk", b"".join((*body, b',"logprobs":', shown, b',"finish_reason":null}]}')))

    def _delta(self, choice: int, delta: bytes, logprobs: list[Logprob] | None = None) -> Body:
        shown = b"null" if logprobs is None else _json(chat_logprobs(logprobs))
        body = (self._head, b',"choices":[{"index":%d,"delta":' % choice, delta)
        return ("chunk", b"".join((*body, b',"logprobs":', shown, b',"finish_reason":null}]}')))

    def _finish(self, choice: int, finish: str) -> Body:
        empty = b'"delta":{}' if self.kind == "chat" else b'"text":""'
        end = b',"logprobs":null,"finish_reason":%b}]}' % _json(finish)
        return ("chunk", b"".join((self._head, b',"choices":[{"index":%d,' % choice, empty, end)))

    def _frames(self, offset: int, bodies: list[Body], seq: int | None = None) -> bytes:
        if not bodies:
            return b""
        seq = self.fold.seq if seq is None else seq
        if seq < self.floor:
            return b""
        if offset == self.after[0]:
            self.matched = seq == self.cursor_seq and self.after[1] < len(bodies)
        shown = []
        for j, body in enumerate(bodies):
            if (offset, j) <= self.after or not body[1]:
                continue
            ident = (
                b"id: %d-%d\n" % (offset, seq) if j == 0 else b"id: %d-%d.%d\n" % (offset, seq, j)
            )
            shown.append(self._frame(ident, body))
        return b"".join(shown)

    def _frame(self, ident: bytes, body: Body) -> bytes:
        name, data = body
        if not data:
            return b""
        if self.framing == OPENAI:
            return ident + b"data: " + data + b"\n\n"
        return b"%bevent: %b\ndata: %b\n\n" % (ident, name.encode(), data)


def asked_usage(result: Result) -> bool:
    """Whether the request asked for `stream_options.include_usage`; its record carried the wish."""
    options = result.echoed.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True
