"""Recording ranges of topics, and playing records into a topic, a stage or any callable.

A recording is a file of JSON lines, one record each, in order of time and, within a partition, of offset:
{"topic", "partition", "offset", "timestamp", "key", "value", "headers"}; bytes are base64, null is null.
"""

import asyncio
import base64
import json
import random
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Any, NamedTuple

from schemas.codec import decode

from .log import Clock, Log, Outgoing, Placed, Record, TopicPartition, Writer
from .lookup import scan
from .stage import Context, Emit, Stage

Player = Callable[[Record], Awaitable[None]]


class Range(NamedTuple):
    """Which records of one partition; `end` is exclusive, and None is the end as it is now."""

    start: int | None = None  # offset
    end: int | None = None
    since_ms: int | None = None  # instead of `start`


def to_line(record: Record) -> str:
    fields = record._asdict()
    fields["key"], fields["value"] = _text(record.key), _text(record.value)
    fields["headers"] = [[name, _text(value)] for name, value in record.headers]
    return json.dumps(fields, separators=(",", ":"))


def from_line(line: str) -> Record:
    """Raises ValueError saying what is wrong with the line."""
    try:
        fields = json.loads(line)
        fields["key"], fields["value"] = _bytes(fields["key"]), _bytes(fields["value"])
        fields["headers"] = tuple((name, _bytes(value) or b"") for name, value in fields["headers"])
        return Record(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a recorded record ({error!r}): {line[:100]!r}") from error


def load(path: Path) -> Iterable[Record]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield from_line(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error


async def read(
    log: Log, ranges: Mapping[TopicPartition, Range], *, budget: float = 600.0
) -> AsyncGenerator[Record, None]:
    """All records of the ranges, merged by time. Raises as `pipeline.lookup.scan`."""
    sources = [_range(log, at, chosen, budget) for at, chosen in ranges.items()]
    heads: list[tuple[int, int, Record]] = []
    try:
        for number, source in enumerate(sources):
            async for record in source:
                heads.append((record.timestamp, number, record))
                break
        heapify(heads)
        while heads:
            _, number, record = heads[0]
            yield record
            following = await anext(sources[number], None)
            if following is None:
                heappop(heads)
            else:  # within a partition offsets decide, whatever the times say
                heapreplace(heads, (max(record.timestamp, following.timestamp), number, following))
    finally:
        for source in sources:
            await source.aclose()


async def record(
    log: Log, ranges: Mapping[TopicPartition, Range], path: Path, *, budget: float = 600.0
) -> int:
    """Write the ranges into `path`; returns how many records."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        async with aclosing(read(log, ranges, budget=budget)) as records:
            async for each in records:
                file.write(to_line(each) + "\n")
                count += 1
    return count


async def replay(
    records: Iterable[Record] | AsyncIterable[Record], player: Player, *, pace: float = 0.0
) -> int:
    """Play records in order; returns how many. `pace`: 1 as it was recorded, 2 twice as fast, 0 at once."""
    if not isinstance(records, AsyncIterable):
        records = _lift(records)
    loop = asyncio.get_running_loop()
    began, first, count = loop.time(), None, 0
    async for each in records:
        first = each.timestamp if first is None else first
        if pace > 0:
            due = began + (each.timestamp - first) / 1000 / pace
            await asyncio.sleep(max(0.0, due - loop.time()))
        await player(each)
        count += 1
    return count


def into_topic(
    writer: Writer,
    topic: str | None = None,
    *,
    keep_partition: bool = True,
    change: Callable[[Outgoing], Outgoing | None] | None = None,
    sent: Callable[["asyncio.Future[Placed]"], None] | None = None,
) -> Player:
    """Write each record again, byte for byte, with the time of now; `change` may alter or drop it.

    Flush the writer afterwards; `sent` is called with each record's future once it is done. A request
    whose id is more than five minutes old is refused at the door: let `change` take the id away.
    """

    async def player(each: Record) -> None:
        partition = each.partition if keep_partition else None
        outgoing: Outgoing | None = Outgoing(
            topic or each.topic, each.value, each.key, partition, each.headers
        )
        if change is not None and outgoing is not None:
            outgoing = change(outgoing)
        if outgoing is not None:
            await writer.room()
            placed = writer.send(outgoing)
            if sent is not None:
                placed.add_done_callback(sent)

    return player


def into_stage(
    stage: Stage,
    kind: Any,
    collect: Callable[[Record, list[Emit]], None],
    *,
    clock: Clock,
    chance: random.Random,
) -> Player:
    """Call a stage with each record, decoded as `kind`, and collect what it yields: sent is nothing.

    Raises schemas.codec.Unreadable, and whatever the stage raises.
    """

    async def player(each: Record) -> None:
        context = Context(each, clock, chance)
        message = decode(each.value, kind)
        collect(each, [emitted async for emitted in stage(message, context)])

    return player


async def _range(
    log: Log, at: TopicPartition, chosen: Range, budget: float
) -> AsyncGenerator[Record, None]:
    source = scan(log, at, start=chosen.start, since_ms=chosen.since_ms, budget=budget)
    async with aclosing(source) as records:
        async for each in records:
            if chosen.end is not None and each.offset >= chosen.end:
                return
            yield each


async def _lift(records: Iterable[Record]) -> AsyncGenerator[Record, None]:
    for each in records:
        yield each


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
