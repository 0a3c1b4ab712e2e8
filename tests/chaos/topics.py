"""What the log says, read by an outsider: results as they come, and everything since a mark."""

import asyncio
import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from schemas.folds import Effect, SlotFold
from schemas.tokens import Chunk, End, Open, decode_event
from tests.flow.log_reading import decoded

READ_LIMIT = 120.0  # s to read what one fault has left behind
Marks = dict[int, int]  # partition → offset


def reader(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,  # brokers that die are what this is about
        }
    )


def ends(bootstrap: str, topic: str) -> Marks:
    """Where each partition ends now; asked again while its leader is being elected."""
    consumer = reader(bootstrap)
    deadline = time.monotonic() + READ_LIMIT
    try:
        while True:
            try:
                known = consumer.list_topics(topic, timeout=10).topics[topic].partitions
                return {
                    p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1]
                    for p in known
                }
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
    finally:
        consumer.close()


def since(bootstrap: str, topic: str, marks: Marks) -> Iterator[Message]:
    """Every record between the marks and now. Raises TimeoutError."""
    until = ends(bootstrap, topic)
    unread = {p for p, end in until.items() if end > marks.get(p, 0)}
    consumer = reader(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, p, marks.get(p, 0)) for p in unread])
        deadline = time.monotonic() + READ_LIMIT
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: partitions {unread} not read to their ends")
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            offset, partition = message.offset(), message.partition()
            assert offset is not None and partition is not None
            if offset < until[partition]:
                yield message
            if offset + 1 >= until[partition]:
                unread.discard(partition)
    finally:
        consumer.close()


def until_in_sync(bootstrap: str, limit: float) -> None:
    """Every replica of every partition follows its leader again. Raises TimeoutError."""
    client = reader(bootstrap)
    deadline = time.monotonic() + limit
    try:
        while True:
            with contextlib.suppress(KafkaException):
                topics = client.list_topics(timeout=10).topics.values()
                found = [p for topic in topics for p in topic.partitions.values()]
                if all(len(p.isrs) == len(p.replicas) for p in found):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the replicas are not in sync after {limit:.0f} s")
            time.sleep(0.2)
    finally:
        client.close()


def until_busy(bootstrap: str, topic: str, members: set[str], limit: float) -> None:
    """Each of these workers has said in its status that it runs something. Raises TimeoutError."""
    consumer = reader(bootstrap)
    deadline = time.monotonic() + limit
    idle = set(members)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while idle:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{', '.join(sorted(idle))}: no work within {limit:.0f} s")
            message = consumer.poll(0.2)
            if message is None or message.error() is not None or message.value() is None:
                continue
            status = decoded(message)
            if (status.get("worker") or {}).get("running"):
                idle.discard(status["member"])
    finally:
        consumer.close()


@dataclass(frozen=True)
class Told:
    """One result as a reader tells it from others: whatever differs here is another outcome."""

    outcome: str
    output: int
    attempts: int
    answer: str  # digest of the token ids
    tokens: int
    error: str


@dataclass
class Results:
    """Follows the results topic from its beginning in a thread of its own."""

    bootstrap: str
    topic: str
    told: dict[str, set[Told]] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)  # id → monotonic time of the first
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Results":
        self._thread = threading.Thread(target=self._follow, name="results", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(20)

    def _follow(self) -> None:
        known = ends(self.bootstrap, self.topic)
        consumer = reader(self.bootstrap)
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in known])
        while not self._stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._hear(decoded(message))
        consumer.close()

    def _hear(self, result: dict[str, Any]) -> None:
        ids = [choice["token_ids"] for choice in result.get("choices") or []]
        told = Told(
            result["outcome"],
            result["output"],
            result.get("attempts", 0),
            hashlib.sha256(msgspec.json.encode(ids)).hexdigest()[:16],
            sum(map(len, ids)),
            str((result.get("error") or {}).get("code", "")),
        )
        self.heard.setdefault(result["id"], time.monotonic())
        self.told.setdefault(result["id"], set()).add(told)

    async def until_told(self, wanted: set[str], limit: float) -> set[str]:
        """Wait for the results of all of these; those that did not come."""
        deadline = time.monotonic() + limit
        while (left := wanted - self.told.keys()) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return left


@dataclass
class Said:
    """What the slots say of the work: tokens that count, and tokens that a device made in vain."""

    counted: int = 0
    wasted: int = 0
    opened: int = 0  # attempts above 1 that began on a worker
    ended: int = 0


def said(bootstrap: str, topic: str, marks: Marks) -> Said:
    """Fold every slot since the marks as an edge does."""
    total = Said()
    folds: dict[str, SlotFold] = {}
    written: dict[tuple[str, int, int], int] = {}  # (request, attempt, choice) → tokens written
    for message in since(bootstrap, topic, marks):
        request_id = (message.key() or b"").decode()
        fold = folds.setdefault(request_id, SlotFold())
        event = decode_event(message.value())
        if isinstance(event, Open):
            fold.open(event.attempt)
            total.opened += event.attempt > 1 and not event.silent
        elif isinstance(event, End):
            total.ended += fold.end() is Effect.CLOSED
        elif isinstance(event, Chunk):
            place = (request_id, event.attempt, event.choice)
            end = event.k + len(event.ids)
            new = max(
                0, end - max(event.k, written.get(place, 0))
            )  # a repeated record costs nothing
            written[place] = max(end, written.get(place, 0))
            effect = fold.chunk(event.attempt, event.choice, event.k, len(event.ids), event.finish)
            total.counted += len(event.ids) if effect is Effect.TOKENS else 0
            total.wasted += new if effect is not Effect.TOKENS else 0
    return total
