"""An open-loop load: arrivals by the clock, whatever happens to those before them."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import KafkaError, Message, Producer

from schemas.ids import mint
from tests.chaos.stream import Stream
from tests.chaos.topics import Results
from tests.flow.installation import Installation

PROMPTS = 8  # distinct questions: every answer to one of them must be the same


@dataclass(frozen=True)
class Shape:
    """How much is in flight, and for how long each."""

    streams: int
    publishes: int
    tokens: int
    seconds: float  # that an answer takes when nothing happens
    model: str = "null"


@dataclass
class Load:
    """Streams over HTTP and records published to Kafka, begun evenly while it runs."""

    fleet: Installation
    results: Results
    shape: Shape
    streams: list[Stream] = field(default_factory=list)
    published: dict[str, float] = field(default_factory=dict)  # acked id → monotonic time
    asked: dict[str, int] = field(default_factory=dict)  # id → which prompt
    unpublished: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(11))
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.edges = [self.fleet.url(1), self.fleet.url(2)]  # they keep their ports
        self.producer = Producer(
            {
                "bootstrap.servers": self.fleet.kafka,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": 180_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def edge(self, turn: int) -> str:
        return self.edges[turn % 2]

    async def run(self, http: httpx.AsyncClient) -> None:
        """Begin requests until `stop`; then wait for every stream. Raises what a client met."""
        await asyncio.gather(
            self._arrivals(self.shape.streams, lambda n: self._stream(n, http)),
            self._arrivals(self.shape.publishes, self._publish),
        )
        await asyncio.to_thread(self.producer.flush, 180)
        await asyncio.gather(*self._tasks)

    def stop(self) -> None:
        self._over.set()

    async def _arrivals(self, in_flight: int, begin: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        begun, number = loop.time(), 0
        while in_flight and not self._over.is_set():
            due = int((loop.time() - begun) * in_flight / self.shape.seconds) + 1
            while number < due:
                begin(number)
                number += 1
            self.producer.poll(0)
            await asyncio.sleep(0.05)

    def _body(self, number: int) -> dict[str, Any]:
        which = number % PROMPTS
        return {
            "model": self.shape.model,
            "prompt": f"Count from {which}",
            "max_tokens": self.shape.tokens,
            "min_tokens": self.shape.tokens,
            "ignore_eos": True,
            "seed": which,
        }

    def _stream(self, number: int, http: httpx.AsyncClient) -> None:
        key = f"{time.time_ns()}-{number}"
        stream = Stream(number % 2 == 0, self._body(number), key, number // 2)
        self.streams.append(stream)
        self._tasks.append(asyncio.create_task(self._follow(stream, http, number)))

    async def _follow(self, stream: Stream, http: httpx.AsyncClient, number: int) -> None:
        try:
            await stream.live(http, self.edge)
        except TimeoutError:
            stream.errors.append(f"never ended: {stream.request_id or 'not accepted'}")
        self.asked[stream.request_id] = number % PROMPTS

    def _publish(self, number: int) -> None:
        request_id = mint(time.time_ns() // 1_000_000, self.chance)
        body = {**self._body(number), "id": request_id}

        def acked(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.published[request_id] = time.monotonic()
                self.asked[request_id] = number % PROMPTS
            else:
                self.unpublished += 1

        self.producer.produce(
            self.fleet.topic("requests"), json.dumps(body).encode(), on_delivery=acked
        )

    def in_flight(self) -> tuple[int, int]:
        """Streams that were accepted and have not ended; published ones without a result."""
        streams = sum(bool(s.request_id) and s.ended is None for s in self.streams)
        return streams, len(self.published.keys() - self.results.told.keys())

    def accepted(self) -> set[str]:
        return {s.request_id for s in self.streams if s.request_id} | self.published.keys()

    def silences(self, at: float, until: float) -> list[float]:
        """For each stream in flight at a fault: its longest time without a sign afterwards, in s."""
        found = []
        for stream in self.streams:
            if not stream.signs or stream.signs[0] > at or (stream.ended or until) <= at:
                continue
            last, longest = at, 0.0
            for sign in stream.signs:
                if sign > at and last < until:
                    longest, last = max(longest, sign - last), sign
            found.append(longest)
        return found
