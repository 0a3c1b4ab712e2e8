"""Fetch and Produce, packed and unpacked by the partition instead of by the field.

Schemas that are walked for every field of every partition were most of what a fetch cost, because most
partitions of a fetch have nothing new. Versions of Kafka's protocol that every broker since 2.4 speaks.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

FETCH, PRODUCE = (1, 11), (0, 7)  # a request's number in the protocol, and its version

_HEAD = struct.Struct(">iiiibii")  # replica, wait, min and max bytes, isolation, session, epoch
_ASKED = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_ANSWER = struct.Struct(">ihii")  # throttle, error, session, topics
_STATE = struct.Struct(
    ">ihqqqi"
)  # partition, error, high watermark, last stable, log start, aborted
_ABORTED = 16  # bytes of an aborted transaction: of no use to who reads uncommitted records
_TAIL = struct.Struct(">ii")  # preferred replica, length of the batches
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_END = _INT.pack(0) + _SHORT.pack(0)  # no forgotten topics, no rack
_PUT = struct.Struct(">hhii")  # no transaction, acks, timeout, topics
_TO = struct.Struct(">ii")  # partition, length of the batch
_PLACED = struct.Struct(">ihqqq")  # partition, error, offset, timestamp, log start
_ALL = -1  # acks
_NO_SESSION = (0, -1)
_CONSUMER = -1  # in the place of a replica's number
_UNCOMMITTED = 0


class Fetched(NamedTuple):
    """What an answer says of one partition."""

    at: tuple[str, int]
    error: int  # 0: none
    end: int  # the high watermark
    batches: memoryview


def pack_fetch(
    asked: Iterable[tuple[tuple[str, int], int]], *, wait: int, most: int, most_each: int
) -> bytes:
    """Ask for partitions from their offsets on: `wait` ms at most, so many bytes in all and of each.

    The order is kept, since a broker fills its answer in it: a topic may come several times.
    """
    parts = [b""]
    topics = 0
    for topic, partitions in groupby(asked, lambda each: each[0][0]):
        packed = [_ASKED.pack(at[1], -1, offset, -1, most_each) for at, offset in partitions]
        name = topic.encode()
        parts += (_SHORT.pack(len(name)), name, _INT.pack(len(packed)), *packed)
        topics += 1
    parts[0] = _HEAD.pack(_CONSUMER, wait, 1, most, _UNCOMMITTED, *_NO_SESSION) + _INT.pack(topics)
    parts.append(_END)
    return b"".join(parts)


def unpack_fetch(raw: memoryview) -> tuple[int, Sequence[Fetched]]:
    """The answer's own error and what it says of each partition. Raises ValueError if it is cut short."""
    try:
        _, error, _, topics = _ANSWER.unpack_from(raw)
        return error, list(_partitions(raw, topics))
    except struct.error as short:
        raise ValueError(f"a fetch was answered with too few bytes: {short}") from short


def _partitions(raw: memoryview, topics: int) -> Iterator[Fetched]:
    at = _ANSWER.size
    for _ in range(topics):
        name, partitions, at = _topic(raw, at)
        for _ in range(partitions):
            partition, error, end, _, _, aborted = _STATE.unpack_from(raw, at)
            at += _STATE.size + max(0, aborted) * _ABORTED
            _, length = _TAIL.unpack_from(raw, at)
            at += _TAIL.size
            batches = raw[at : at + max(0, length)]
            if len(batches) < length:
                raise ValueError("a fetch was answered with less than it says")
            at += len(batches)
            yield Fetched((name, partition), error, end, batches)


def _topic(raw: memoryview, at: int) -> tuple[str, int, int]:
    """A topic's name, the number of its partitions, and where they begin."""
    (length,) = _SHORT.unpack_from(raw, at)
    at += _SHORT.size
    name = str(raw[at : at + length], "utf-8")
    at += length
    (partitions,) = _INT.unpack_from(raw, at)
    return name, partitions, at + _INT.size


class Produced(NamedTuple):
    """What an answer says of one batch."""

    at: tuple[str, int]
    error: int  # 0: none
    offset: int  # of its first record
    timestamp: int  # ms of its append; -1: its records keep their own


def pack_produce(batches: Iterable[tuple[tuple[str, int], bytes]], *, timeout: int) -> bytes:
    """Append one batch to each of some partitions, acks=all; `timeout` ms for the replicas."""
    parts = [b""]
    topics = 0
    for topic, partitions in groupby(batches, lambda each: each[0][0]):
        packed = [(_TO.pack(at[1], len(batch)), batch) for at, batch in partitions]
        name = topic.encode()
        parts += (_SHORT.pack(len(name)), name, _INT.pack(len(packed)))
        for pair in packed:
            parts += pair
        topics += 1
    parts[0] = _PUT.pack(-1, _ALL, timeout, topics)
    return b"".join(parts)


def unpack_produce(raw: memoryview) -> Sequence[Produced]:
    """Raises ValueError if it is cut short."""
    produced: list[Produced] = []
    try:
        (topics,), at = _INT.unpack_from(raw), 4
        for _ in range(topics):
            name, partitions, at = _topic(raw, at)
            for _ in range(partitions):
                partition, error, offset, stamp, _ = _PLACED.unpack_from(raw, at)
                at += _PLACED.size
                produced.append(Produced((name, partition), error, offset, stamp))
    except struct.error as short:
        raise ValueError(f"a batch was answered with too few bytes: {short}") from short
    return produced
