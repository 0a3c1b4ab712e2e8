"""Kafka's record batch, format version 2: its header read, its content checked, its place stamped.

The batch itself stays opaque bytes. Layout: Kafka's `DefaultRecordBatch` documentation.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import cramjam
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from pipeline.embedded.errors import Code, Refused

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END = 12  # base offset and length come before what the length counts
_CRC_FROM = 21  # the CRC covers the batch from its attributes on
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"  # the framing of Java's snappy streams, which clients use
LEADER_EPOCH = 0  # one leader for ever


class Header(NamedTuple):
    """The 61 bytes before the records; times in ms since 1970."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


class Limits(NamedTuple):
    """What a topic allows in one batch; bytes, and ms around the broker's clock."""

    max_bytes: int
    max_decompressed_bytes: int
    timestamp_before_ms: int
    timestamp_after_ms: int
    append_time: bool
    keys_required: bool


def read_header(batch: bytes) -> Header:
    """The header of the batch at the start of `batch`; raises `Refused` if it is cut short."""
    if len(batch) < _HEADER.size:
        raise Refused(Code.invalid_record, "the request carries no whole record batch")
    return Header._make(_HEADER.unpack_from(batch))


def check(batch: bytes, limits: Limits, now: int) -> Header:
    """Refuse (`Refused`) what a reader could not open: it would stop the partition for ever.

    The header returned has the highest timestamp that the records have, whatever was said.
    """
    header = read_header(batch)
    if header.magic != 2:
        raise Refused(Code.invalid_record, f"record format {header.magic}, wanted 2")
    if header.length + _LENGTH_END != len(batch):
        raise Refused(Code.invalid_record, "one partition takes exactly one whole batch a request")
    if len(batch) > limits.max_bytes:
        raise Refused(
            Code.message_too_large,
            f"the batch has {len(batch)} bytes, max.message.bytes is {limits.max_bytes}",
        )
    if crc32c(memoryview(batch)[_CRC_FROM:]) != header.crc:
        raise Refused(Code.corrupt_message, "the batch does not match its CRC")
    if header.attributes & (_TRANSACTIONAL | _CONTROL):
        raise Refused(Code.invalid_record, "transactional and control batches are not taken")
    if header.records < 1 or header.last_offset_delta != header.records - 1:
        raise Refused(Code.invalid_record, "the record count and the last offset disagree")
    if header.attributes & _APPEND_TIME:
        raise Refused(Code.invalid_timestamp, "only the broker sets the time of appending")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise Refused(Code.invalid_record, "a producer id without epoch or sequence number")
    return header._replace(max_timestamp=_check_records(batch, header, limits, now))


def _check_records(batch: bytes, header: Header, limits: Limits, now: int) -> int:
    """The highest timestamp of the records, which are all in order."""
    earliest, latest = now - limits.timestamp_before_ms, now + limits.timestamp_after_ms
    count, highest = 0, -1
    for record in records(batch, limits.max_decompressed_bytes):
        if record.offset != header.base_offset + count:
            raise Refused(Code.invalid_record, f"record {count} has another offset than its place")
        if record.key is None and limits.keys_required:
            raise Refused(Code.invalid_record, "a compacted topic takes no record without a key")
        if not (limits.append_time or earliest <= record.timestamp <= latest):
            raise Refused(
                Code.invalid_timestamp,
                f"timestamp {record.timestamp} is not within {earliest}..{latest}",
            )
        count += 1
        highest = max(highest, record.timestamp)
    if count != header.records:
        raise Refused(
            Code.invalid_record, f"{count} records where the header says {header.records}"
        )
    return highest


def records(batch: bytes, max_decompressed_bytes: int) -> Iterator[Any]:
    """The batch's records (offset, timestamp, key, value, headers); raises `Refused` on garbage."""
    try:
        reader = DefaultRecordBatch(_decompressed(batch, max_decompressed_bytes))
        yield from reader
    except (CorruptRecordException, ValueError, IndexError, OverflowError) as error:
        raise Refused(Code.invalid_record, f"the records cannot be read: {error}") from error


def _decompressed(batch: bytes, limit: int) -> bytes:
    """The same batch without compression, its records at most `limit` bytes."""
    header = Header._make(_HEADER.unpack_from(batch))
    codec = header.attributes & _CODEC
    if codec == 0:
        return batch
    body = _inflate(codec, memoryview(batch)[_HEADER.size :], limit)
    plain = header._replace(attributes=header.attributes & ~_CODEC)
    return _HEADER.pack(*plain) + body


def _inflate(codec: int, body: memoryview, limit: int) -> bytes:
    if codec == _GZIP:
        try:
            inflater = zlib.decompressobj(31)
            plain = inflater.decompress(body, limit + 1)
        except zlib.error as error:
            raise Refused(Code.invalid_record, f"gzip: {error}") from error
        if len(plain) > limit:
            raise Refused(Code.invalid_record, f"more than {limit} bytes when decompressed")
        return plain
    if codec == _SNAPPY and bytes(body[:8]) == _XERIAL:
        return _inflate_xerial(body, limit)
    if codec not in (_SNAPPY, _LZ4, _ZSTD):
        raise Refused(Code.invalid_record, f"unknown compression {codec}")
    return _inflate_into(codec, body, limit)


def _inflate_into(codec: int, body: memoryview, limit: int) -> bytes:
    module = {_SNAPPY: cramjam.snappy, _LZ4: cramjam.lz4, _ZSTD: cramjam.zstd}[codec]
    into = module.decompress_raw_into if codec == _SNAPPY else module.decompress_into
    room = mmap.mmap(-1, limit)  # its pages cost nothing until something is written to them
    try:
        return room[: into(body, room)]
    except cramjam.DecompressionError as error:
        raise Refused(
            Code.invalid_record, f"damaged, or more than {limit} bytes when decompressed: {error}"
        ) from error
    finally:
        room.close()


def _inflate_xerial(body: memoryview, limit: int) -> bytes:
    plain, at = bytearray(), 16  # magic, version, compatible version
    while at + 4 <= len(body):
        (size,) = struct.unpack_from(">i", body, at)
        if size < 0 or at + 4 + size > len(body):
            raise Refused(Code.invalid_record, "a snappy block is cut short")
        plain += _inflate_into(_SNAPPY, body[at + 4 : at + 4 + size], limit - len(plain) + 1)
        at += 4 + size
        if len(plain) > limit:
            raise Refused(Code.invalid_record, f"more than {limit} bytes when decompressed")
    return bytes(plain)


def stamped(batch: bytes, header: Header, base_offset: int, append_time: int | None) -> bytes:
    """The batch at its place in the log; with `append_time` (ms) that is every record's time."""
    if append_time is None:
        # base offset and leader epoch are outside the CRC: the rest stays as it came
        return b"".join((struct.pack(">qii", base_offset, header.length, LEADER_EPOCH), batch[16:]))
    placed = header._replace(
        base_offset=base_offset,
        leader_epoch=LEADER_EPOCH,
        attributes=header.attributes | _APPEND_TIME,
        max_timestamp=append_time,
    )
    return _sealed(placed, batch[_HEADER.size :])


def _sealed(header: Header, body: bytes) -> bytes:
    """Header and body with the right length and CRC."""
    length = _HEADER.size + len(body) - _LENGTH_END
    packed = _HEADER.pack(*header._replace(length=length, crc=0))
    crc = crc32c(body, crc32c(packed[_CRC_FROM:]))
    return packed[:17] + struct.pack(">I", crc) + packed[_CRC_FROM:] + body


def rebuilt(batch: bytes, kept: list[Any], timestamp: int) -> bytes:
    """The batch with only the `kept` records (at least one), at their old offsets.

    `timestamp` (ms) is the new max timestamp. What compaction writes; it keeps the codec.
    """
    header = Header._make(_HEADER.unpack_from(batch))
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=header.attributes & _CODEC,
        is_transactional=0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        batch_size=1 << 30,  # never the reason to stop: the records fitted in one batch before
    )
    for record in kept:
        delta = record.offset - header.base_offset
        builder.append(delta, record.timestamp, record.key, record.value, record.headers)
    built = bytes(builder.build())
    made = Header._make(_HEADER.unpack_from(built))
    placed = made._replace(
        base_offset=header.base_offset,
        leader_epoch=LEADER_EPOCH,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes,
        max_timestamp=timestamp,
    )
    return _sealed(placed, built[_HEADER.size :])
