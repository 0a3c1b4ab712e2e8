"""Stepping over a batch that the client cannot open: a codec that is missing, a checksum that is off.

The client would read it again for ever, and nothing behind it. Batches carry their last offset in a
header that is never compressed (Kafka's record batch format, version 2), so the way on is known.
"""

import logging
import struct
import zlib
from typing import Any

import cramjam
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors as kafka
from aiokafka.protocol.fetch import FetchRequest

from .. import metrics

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
WAIT = 1_000  # ms for one fetch


async def step_over(
    consumer: AIOKafkaConsumer, error: Exception, max_records: int
) -> list[tuple[KafkaPartition, list[Any]]]:
    """Read what comes before the batch one by one, then seek behind it. Raises `error` if none is there."""
    for at in consumer.assignment():
        end = consumer.highwater(at)
        if end is None or await consumer.position(at) >= end:
            continue
        records, cause = await _read_up_to(consumer, at, max_records)
        if cause is not None:
            await _skip(consumer, at, cause)
        if records or cause is not None:
            return [(at, records)]
    raise error


async def _read_up_to(
    consumer: AIOKafkaConsumer, at: KafkaPartition, limit: int
) -> tuple[list[Any], Exception | None]:
    records: list[Any] = []
    while len(records) < limit:
        try:
            found = await consumer.getmany(at, timeout_ms=WAIT, max_records=1)
        except CANNOT_OPEN as error:
            return records, error
        if not found:
            break
        records += found[at]
    return records, None


async def _skip(consumer: AIOKafkaConsumer, at: KafkaPartition, cause: Exception) -> None:
    position = await consumer.position(at)
    batch = await _fetch(consumer, at, position)
    first, following = _bounds(batch, position)
    logger.error(
        "%s[%d]: a batch cannot be opened, its offsets %d to %d are skipped: %r",
        *at,
        max(first, position),
        following - 1,
        cause,
    )
    metrics.unreadable.labels(at.topic).inc(following - max(first, position))
    consumer.seek(at, following)


async def _fetch(consumer: AIOKafkaConsumer, at: KafkaPartition, position: int) -> bytes:
    """The raw batches from `position` on."""
    client = consumer._client
    request = FetchRequest(WAIT, 1, 1 << 20, 0, [(at.topic, [(at.partition, position, 1 << 20)])])
    response = await client.send(client.cluster.leader_for_partition(at), request)
    ((_, ((_, code, *_rest, batches),)),) = response.topics
    if code:
        raise kafka.for_code(code)(f"{at}")
    return bytes(batches)


def _bounds(batches: bytes, position: int) -> tuple[int, int]:
    """First offset of the batch that holds `position`, and the offset behind its last."""
    start = 0
    while start + HEADER.size <= len(batches):
        base, length, magic, delta = HEADER.unpack_from(batches, start)
        following = base + (delta if magic >= 2 else 0) + 1
        if following > position:
            return base, following
        start += 12 + length  # base offset and length are not counted in it
    return position, position + 1
