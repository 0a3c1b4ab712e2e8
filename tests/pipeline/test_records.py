"""Batches become records from a position on; what cannot be opened costs itself and nothing else."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.records import Part, Place, unpack
from pipeline.log import Record, TopicPartition
from pipeline.metrics import REGISTRY

AT = TopicPartition("records", 3)
CONTROL = 0x20
BASE = struct.Struct(">q")
LENGTH = slice(8, 12)


def batch(base: int, count: int, compression: int = 0) -> bytes:
    """Records `base` to `base + count - 1`, whose values are their offsets."""
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 1 << 20)
    for i in range(count):
        builder.append(i, 1_000 + i, b"k", b"%d" % (base + i), [("type", b"t"), ("none", None)])
    made = builder.build()
    made[:8] = BASE.pack(base)  # not part of the checksum
    return bytes(made)


def broken(whole: bytes) -> bytes:
    return whole[:-1] + bytes([whole[-1] ^ 1])


def values(records: list[Record]) -> list[int]:
    return [int(each.value or b"") for each in records]


def skipped() -> float:
    return REGISTRY.get_sample_value("headrace_unreadable_total", {"topic": AT.topic}) or 0.0


def test_a_record_is_what_was_sent() -> None:
    records, following = unpack(AT, memoryview(batch(7, 1)), 7, whole=True)
    assert records == [Record(*AT, 7, 1_000, b"k", b"7", (("type", b"t"), ("none", b"")))]
    assert following == 8


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 12), st.data())
def test_any_position_in_any_batches_cut_anywhere(
    counts: list[int], position: int, data: st.DataObject
) -> None:
    """What is whole is read from the position on; what is cut off is fetched again."""
    batches = [batch(sum(counts[:i]), count) for i, count in enumerate(counts)]
    raw = b"".join(batches)
    cut = data.draw(st.integers(0, len(raw)))
    ends = [len(b"".join(batches[: i + 1])) for i in range(len(batches))]
    end = sum(count for count, at in zip(counts, ends, strict=True) if at <= cut)
    records, following = unpack(AT, memoryview(raw)[:cut], position, whole=False)
    assert values(records) == list(range(position, end))
    assert following == max(position, end)


def test_gaps_of_a_compacted_topic_and_transaction_markers_are_passed() -> None:
    marker = bytearray(batch(5, 1))
    marker[22] |= CONTROL
    raw = batch(2, 1) + batch(9, 2)
    records, following = unpack(AT, memoryview(raw), 0, whole=True)
    assert (values(records), following) == ([2, 9, 10], 11)
    assert unpack(AT, memoryview(sealed(marker)), 5, whole=True) == ([], 6)


def sealed(changed: bytearray) -> bytes:
    """With the checksum of what it holds now."""
    changed[17:21] = struct.pack(">I", calc_crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_every_codec(codec: int) -> None:
    records, following = unpack(AT, memoryview(batch(0, 100, codec)), 60, whole=True)
    assert (values(records), following) == (list(range(60, 100)), 100)


@pytest.mark.parametrize("magic", [0, 1])
def test_formats_before_kafka_0_11(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    for offset in range(3):
        builder.append(offset, timestamp=5, key=b"k", value=b"%d" % offset)
    records, following = unpack(AT, memoryview(bytes(builder.build())), 1, whole=True)
    assert (values(records), following) == ([1, 2], 3)


def test_a_batch_that_is_damaged_is_stepped_over() -> None:
    before = skipped()
    raw = batch(0, 2) + broken(batch(2, 3)) + batch(5, 1)
    records, following = unpack(AT, memoryview(raw), 1, whole=True)
    assert (values(records), following) == ([1, 5], 6)
    assert skipped() - before == 3


@pytest.mark.parametrize("length", [-5, 0, 40])
def test_a_length_that_cannot_be_costs_one_offset(length: int) -> None:
    """It says no more where the next batch is: the broker does, when it is asked for the next offset."""
    raw = bytearray(batch(4, 3))
    raw[LENGTH] = struct.pack(">i", length)
    before = skipped()
    assert unpack(AT, memoryview(bytes(raw)), 4, whole=True) == ([], 5)
    assert skipped() - before == 1


def test_what_a_broker_never_sends_whole_is_stepped_over() -> None:
    raw = memoryview(batch(4, 3))[:-1]
    assert unpack(AT, raw, 4, whole=False) == ([], 4)  # others were before it: it comes whole yet
    assert unpack(AT, raw, 4, whole=True) == ([], 5)


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_end_a_process(raw: bytes, whole: bool) -> None:
    records, following = unpack(AT, memoryview(raw), 3, whole=whole)
    assert following >= 3
    assert all(each.offset >= 3 for each in records)


def test_a_part_is_taken_in_pieces_and_the_place_moves_with_them() -> None:
    place = Place(AT, 0)
    part = Part(place, memoryview(batch(0, 5)), whole=True)
    taken = []
    for most in (2, 2, 2):
        records, all_of_it = part.take(most)
        taken.append((values(records), place.position, all_of_it))
    assert taken == [([0, 1], 2, False), ([2, 3], 4, False), ([4], 5, True)]
