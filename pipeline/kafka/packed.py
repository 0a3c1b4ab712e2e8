"""Fetch requests and their answers, packed and unpacked by the partition instead of by the field.

The client walks its schemas for every field of every partition, and most partitions of a fetch have
nothing new: that walk was most of what a fetch cost. Version 11 of Kafka's protocol, which every broker
since 2.4 speaks; what an older one speaks is left to the client.
"""

import struct
from io import BytesIO
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v11, FetchResponse_v11

_HEAD = struct.Struct(
    ">iiiibiii"
)  # replica, wait, min and max bytes, isolation, session (2), topics
_ASKED = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_ANSWER = struct.Struct(">ihii")  # throttle, error, session, topics
_STATE = struct.Struct(
    ">ihqqqi"
)  # partition, error, high watermark, last stable, log start, aborted
_ABORTED = struct.Struct(">qq")  # producer, first offset
_TAIL = struct.Struct(">ii")  # preferred replica, length of the batches
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_NONE: list[Any] = []

Topics = list[tuple[str, list[tuple[Any, ...]]]]


class _Answer(FetchResponse_v11):  # type: ignore[misc]
    @classmethod
    def decode(cls, data: BytesIO | bytes) -> "_Answer":
        raw = data.read() if isinstance(data, BytesIO) else data
        try:
            return cls._unpack(raw)
        except struct.error as error:
            raise ValueError(f"a fetch was answered with too few bytes: {error}") from error

    @classmethod
    def _unpack(cls, raw: bytes) -> "_Answer":
        throttle, error, session, count = _ANSWER.unpack_from(raw)
        at = _ANSWER.size
        topics: Topics = []
        for _ in range(count):
            (length,) = _SHORT.unpack_from(raw, at)
            name = raw[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (partitions,) = _INT.unpack_from(raw, at)
            at += 4
            states: list[tuple[Any, ...]] = []
            for _ in range(partitions):
                state, at = _state(raw, at)
                states.append(state)
            topics.append((name, states))
        return cls(throttle, error, session, topics)


def _state(raw: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    """One partition of an answer, and where the next begins."""
    *fields, count = _STATE.unpack_from(raw, at)
    at += _STATE.size
    aborted = _NONE
    if count > 0:
        end = at + count * _ABORTED.size
        aborted, at = list(_ABORTED.iter_unpack(raw[at:end])), end
    replica, length = _TAIL.unpack_from(raw, at)
    at += _TAIL.size
    batches = raw[at : at + length] if length > 0 else b""
    if len(batches) < length:
        raise ValueError("a fetch was answered with less than it says")
    return (*fields, aborted, replica, batches), at + len(batches)


class _Packed(FetchRequest_v11):  # type: ignore[misc]
    RESPONSE_TYPE = _Answer

    def encode(self) -> bytes:
        head = _HEAD.pack(
            self.replica_id,
            self.max_wait_time,
            self.min_bytes,
            self.max_bytes,
            self.isolation_level,
            self.session_id,
            self.session_epoch,
            len(self.topics),
        )
        parts = [head]
        for topic, partitions in self.topics:
            name = topic.encode()
            parts += (_SHORT.pack(len(name)), name, _INT.pack(len(partitions)))
            parts += [_ASKED.pack(*each) for each in partitions]
        rack = self.rack_id.encode()
        parts += (_INT.pack(0), _SHORT.pack(len(rack)), rack)  # no forgotten topics
        return b"".join(parts)


class PackedFetch(FetchRequest):  # type: ignore[misc]
    """What the client's fetcher asks with."""

    def build(self, request_struct_class: Any) -> Any:
        packs = request_struct_class is FetchRequest_v11
        return super().build(_Packed if packs else request_struct_class)


def pack_fetches() -> None:
    """Once is enough, however often this is called."""
    fetcher.FetchRequest = PackedFetch
