"""Fetched batches made into records, and stepping over a batch that cannot be opened: a codec that is
missing, a checksum that is off.

It would be fetched again for ever, and nothing behind it. Batches carry their last offset in a header that
is never compressed (Kafka's record batch format, version 2), so the way on is known.
"""

import logging
import struct
import zlib
from typing import Any

import cramjam
from aiokafka import errors as kafka
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from .. import metrics
from ..log import Record, TopicPartition

logger = logging.getLogger(__name__)
CANNOT_OPEN = (
    kafka.CorruptRecordException,
    kafka.UnsupportedCodecError,
    cramjam.DecompressionError,
    zlib.error,
    struct.error,
    ValueError,  # and UnicodeDecodeError: a header's name that is not UTF-8
    IndexError,
    RuntimeError,
)
HEADER = struct.Struct(">qi4xb4x2xi")  # base offset, length, magic, last offset delta
PREFIX = 12  # bytes: base offset and length are not counted in the length
LEAST = (14, 14, 49)  # bytes that a batch of this magic has at least: shorter ones crash the parser


class Place:
    """Where a reader is in one partition."""

    __slots__ = ("at", "end", "position")

    def __init__(self, at: TopicPartition, position: int) -> None:
        self.at = at
        self.position = position  # what the next poll is owed
        self.end: int | None = None  # as the last fetch told it


class Part:
    """One partition's share of an answer, unpacked when its turn comes."""

    __slots__ = ("_batches", "_following", "_records", "_whole", "place")

    def __init__(self, place: Place, batches: memoryview, *, whole: bool) -> None:
        self.place = place
        self._batches = batches
        self._whole = whole
        self._records: list[Record] | None = None
        self._following = -1

    def take(self, most: int) -> tuple[list[Record], bool]:
        """So many records at most, and whether that was all; the place moves on."""
        place = self.place
        if self._records is None:
            self._records, self._following = unpack(
                place.at, self._batches, place.position, whole=self._whole
            )
        if len(self._records) <= most:
            place.position = self._following
            return self._records, True
        taken = self._records[:most]
        del self._records[:most]
        place.position = taken[-1].offset + 1
        return taken, False


def unpack(
    at: TopicPartition, batches: memoryview, position: int, *, whole: bool
) -> tuple[list[Record], int]:
    """Records from `position` on, and the offset to go on from.

    The last batch may be cut short: it is fetched again. `whole` says that the broker owed us the first one
    whole, as it does to the first partition of an answer, however large it is.
    """
    records: list[Record] = []
    first, start = position, 0
    while len(batches) - start >= HEADER.size:
        base, length, magic, delta = HEADER.unpack_from(batches, start)
        end = start + PREFIX + length
        following = base + (delta if magic >= 2 else 0) + 1
        if length < LEAST[min(max(magic, 0), 2)]:
            _report(at, position, position + 1, "its length is wrong")
            return records, position + 1
        if end > len(batches):
            break
        if following > position:
            before = len(records)
            try:
                _open(at, batches[start:end], magic, position, records)
            except CANNOT_OPEN as error:
                del records[before:]
                _report(at, max(base, position), following, repr(error))
            position = following
        start = end
    if whole and position == first and start == 0:
        _report(at, position, position + 1, f"only {len(batches)} bytes of it came")
        position += 1
    return records, position


def _open(
    at: TopicPartition, batch: memoryview, magic: int, position: int, records: list[Record]
) -> None:
    topic, partition = at
    if not 0 <= magic < len(LEAST):
        raise kafka.CorruptRecordException(f"format {magic} is unknown")
    opened: Any = DefaultRecordBatch(batch) if magic == 2 else _legacy(batch)
    if not opened.validate_crc():
        raise kafka.CorruptRecordException("its checksum is off")
    if opened.is_control_batch:
        return
    for each in opened:
        if (offset := each.offset) >= position:
            headers = each.headers
            pairs = tuple([(name, value or b"") for name, value in headers]) if headers else ()
            records.append(
                Record(topic, partition, offset, each.timestamp, each.key, each.value, pairs)
            )


def _legacy(batch: memoryview) -> Any:
    return MemoryRecords(bytes(batch)).next_batch()


def _report(at: TopicPartition, first: int, following: int, cause: str) -> None:
    logger.error(
        "%s[%d]: a batch cannot be opened, its offsets %d to %d are skipped: %s",
        *at,
        first,
        following - 1,
        cause,
    )
    metrics.unreadable.labels(at.topic).inc(following - first)
