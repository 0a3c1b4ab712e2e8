"""What clients do: ask, read, lose their connection, go on at the other edge, cancel, leave."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from pipeline.log import Outgoing
from schemas.ids import mint

from .http import Broken, Call, Frame
from .scenario import Ask
from .world import MODEL, World

AGAIN = 0.2  # s until a client that was refused for now, or cut, tries again
TRIES = 2000  # at most: 400 s, longer than any fault


@dataclass(eq=False)
class Client:
    """One client. `accepted`: from here on the promise holds."""

    world: World
    ask: Ask
    request_id: str = ""
    accepted: bool = False
    refused: int = 0  # the status of a final refusal
    left: bool = False
    frames: list[Frame] = field(default_factory=list)
    finished: bool = False  # read to the closing event
    body: dict[str, Any] | None = None  # of a whole answer, or of `done`
    cuts: int = 0
    longest_gap: float = 0.0  # s without a connection: beyond the grace it counts as gone
    _broken_at: float | None = None
    ids_of_key: set[str] = field(default_factory=set)

    async def run(self) -> None:
        await asyncio.sleep(self.ask.at)
        if self.ask.cancel_after is not None:
            asyncio.get_running_loop().create_task(self._cancel(self.ask.cancel_after))
        await {
            "stream": self._stream,
            "whole": self._whole,
            "native": self._native,
            "keyed": self._keyed,
            "publish": self._publish,
        }[self.ask.way]()

    @property
    def _request(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"question {self.ask.number}"}],
            "max_tokens": self.ask.tokens,
            "seed": self.ask.number,
            "service_tier": self.ask.tier,
        }
        if self.ask.deadline is not None:
            made["timeout"] = self.ask.deadline
        return made

    def _edge(self, number: int) -> Any:
        process = self.world.members[f"edge-{number}"]
        return None if process.ended or process.held else process

    async def _post(
        self, path: str, body: dict[str, Any], edge: int, key: str | None = None
    ) -> Call | None:
        """An accepted call, or None: refused for good (`refused` says how)."""
        for attempt in range(TRIES):
            try:
                headers = {} if key is None else {"Idempotency-Key": key}
                call = Call(self._edge(edge), "POST", path, body, headers)
                status = await call.start()
            except Broken:
                await asyncio.sleep(AGAIN)
                edge = 3 - edge
                continue
            if status in (429, 503):
                await call.content()
                await asyncio.sleep(AGAIN)
                edge = 3 - edge if attempt % 2 else edge
                continue
            if status >= 400:
                self.refused = status
                self.body = json.loads(await call.content())
                return None
            self.request_id = call.headers["headrace-request-id"]
            return call
        raise TimeoutError(f"client {self.ask.number} was never let in")

    async def _stream(self) -> None:
        call = await self._post(
            "/v1/chat/completions", {**self._request, "stream": True}, self.ask.edge
        )
        if call is None:
            return
        self.accepted = True
        leaving = None
        if self.ask.leave_after is not None:
            leaving = asyncio.get_running_loop().call_later(self.ask.leave_after, self._leave, call)
        await self._follow(call, self.ask.edge, "?format=openai")
        if leaving is not None:
            leaving.cancel()

    def _leave(self, call: Call) -> None:
        self.left = True
        call.close()

    async def _native(self) -> None:
        call = await self._post("/v1/requests", self._request, self.ask.edge)
        if call is None:
            return
        await call.content()
        self.accepted = True
        await self._follow(None, self.ask.edge, "")

    async def _keyed(self) -> None:
        """The same key at both edges: one request."""
        key = f"key {self.ask.number}"
        body = self._request
        for edge in (self.ask.edge, 3 - self.ask.edge):
            call = await self._post("/v1/requests", body, edge, key)
            if call is None:
                return
            try:
                await call.content()
            except Broken:
                continue  # it may have been taken: the next one will tell
            self.accepted = True
            self.ids_of_key.add(self.request_id)
        await self._follow(None, self.ask.edge, "")

    async def _whole(self) -> None:
        call = await self._post("/v1/chat/completions", self._request, self.ask.edge)
        if call is None:
            return
        try:
            self.body = json.loads(await call.content())
            self.accepted = self.finished = True
        except Broken:
            self.left = True  # its answer is lost with its connection, and it was told nothing

    async def _publish(self) -> None:
        """A plain Kafka client: half of them choose the id, and publish twice."""
        body = self._request
        headers = [("correlation-id", f"mine {self.ask.number}".encode())]
        if self.ask.deadline is not None:
            body.pop("timeout")
            deadline = self.world.clock.ms() + int(self.ask.deadline * 1000)
            headers.append(("deadline", str(deadline).encode()))
        repeat = 1
        if self.ask.number % 2:
            self.request_id = body["id"] = mint(self.world.clock.ms(), self.world.chance)
            repeat = 2
        for _ in range(repeat):
            value = json.dumps(body).encode()
            record = Outgoing(self.world.topics.requests, value, None, headers=tuple(headers))
            placed = await self.world.writer.send(record)
            self.accepted = True
            if not self.request_id:
                from schemas.ids import derive

                self.request_id = derive(
                    placed.timestamp, placed.topic, placed.partition, placed.offset
                )
            await asyncio.sleep(0.1)

    async def _follow(self, call: Call | None, edge: int, form: str) -> None:
        """Read to the end, whatever breaks; `call` is a stream that is open already."""
        for _ in range(TRIES):
            try:
                if call is None:
                    call = await self._reopen(edge, form)
                if call is not None and await self._read(call):
                    self.finished = True
                    return
            except Broken:
                self.cuts += 1
                if self._broken_at is None:
                    self._broken_at = self.world.loop.time()
            if self.left:
                return
            call = None
            edge = 3 - edge
            await asyncio.sleep(AGAIN)
        raise TimeoutError(f"client {self.ask.number} never came to the end of {self.request_id}")

    async def _reopen(self, edge: int, form: str) -> Call | None:
        seen = [frame.id for frame in self.frames if frame.id is not None]
        headers = {"Last-Event-ID": seen[-1]} if seen else {}
        path = f"/v1/requests/{self.request_id}/events{form}"
        call = Call(self._edge(edge), "GET", path, headers=headers)
        if await call.start() == 200:
            if self._broken_at is not None:
                self.longest_gap = max(self.longest_gap, self.world.loop.time() - self._broken_at)
                self._broken_at = None
            return call
        body = await call.content()
        if call.status not in (404, 429, 503):  # 404: its record is not readable yet
            raise AssertionError(f"{path} with {headers}: {call.status} {body!r}")
        return None

    async def _read(self, call: Call) -> bool:
        """Frames until the end; a client that is cut there breaks off once. True: it was the end."""
        while (frame := await call.frame()) is not None:
            if frame.data == "[DONE]":
                return True
            if not frame.data:  # `retry:` of an edge that drains
                continue
            self.frames.append(frame)
            if frame.event == "done":
                self.body = json.loads(frame.data)
                return True
            if self.ask.cut_after == len(self.frames) and not self.cuts:
                call.close()
                raise Broken("cut")
        return False

    async def _cancel(self, delay: float) -> None:
        await asyncio.sleep(delay)
        for _ in range(20):
            if self.request_id:
                try:
                    call = Call(
                        self._edge(self.ask.edge), "DELETE", f"/v1/requests/{self.request_id}"
                    )
                    if await call.start() in (200, 202):
                        await call.content()
                        return
                    await call.content()
                except Broken:
                    pass  # tried again below
            await asyncio.sleep(AGAIN)

    def text(self) -> str:
        """What it was shown, over all its connections."""
        parts = []
        for frame in self.frames:
            if frame.event in ("queued", "started", "done"):
                continue
            said = json.loads(frame.data)
            for choice in said.get("choices", []):
                delta = choice.get("delta")
                parts.append(choice["text"] if delta is None else delta.get("content") or "")
        return "".join(parts)
