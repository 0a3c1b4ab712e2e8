"""A batch that a reader could not open never gets into the log."""

import gzip
import struct
import zlib

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pipeline.embedded.batch import Limits, check, read_header, rebuilt, records, stamped
from pipeline.embedded.errors import Code, Refused
from tests.pipeline.embedded.wire import NOW, batch

LIMITS = Limits(1 << 20, 1 << 20, 2**62, 3_600_000, append_time=False, keys_required=False)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

values = st.lists(
    st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=300)),
    min_size=1,
    max_size=30,
)


def resealed(data: bytes | bytearray) -> bytes:
    """The batch with the CRC its content has."""
    return bytes(data[:17]) + struct.pack(">I", crc32c(bytes(data[21:]))) + bytes(data[21:])


def code_of(data: bytes, limits: Limits = LIMITS) -> Code:
    with pytest.raises(Refused) as refused:
        check(data, limits, NOW)
    return refused.value.code


@given(values, st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]))
def test_what_clients_write_is_taken_in_every_compression(
    pairs: list[tuple[bytes | None, bytes | None]], compression: int
) -> None:
    data = batch(*pairs, compression=compression)
    assert check(data, LIMITS, NOW).records == len(pairs)
    assert [(each.key, each.value) for each in records(data, 1 << 20)] == pairs


@given(values, st.data())
def test_a_flipped_bit_is_found(
    pairs: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    """Outside base offset and leader epoch, which the broker writes anew."""
    good = batch(*pairs)
    place = data.draw(st.sampled_from([*range(8, 12), *range(16, len(good))]))
    bad = bytearray(good)
    bad[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Refused):
        check(bytes(bad), LIMITS, NOW)


@given(st.binary(max_size=200), st.integers(0, 7))
def test_garbage_inside_a_right_crc_is_refused_or_readable(body: bytes, codec: int) -> None:
    head = bytearray(batch((None, b"x"))[:61])
    struct.pack_into(">i", head, 8, 61 - 12 + len(body))
    head[22] = codec
    data = resealed(head + body)
    try:
        count = check(data, LIMITS, NOW).records
    except Refused as refused:
        assert refused.code in (Code.invalid_record, Code.invalid_timestamp)
    else:
        assert len(list(records(data, 1 << 20))) == count


def test_a_wrong_record_count_inside_a_right_crc_is_refused() -> None:
    for count in (0, 1, 3, 2**31 - 1):
        data = bytearray(batch((None, b"a"), (None, b"b")))
        struct.pack_into(">i", data, 23, count - 1)
        struct.pack_into(">i", data, 57, count)
        assert code_of(resealed(data)) is Code.invalid_record


def test_two_batches_in_one_are_refused() -> None:
    assert code_of(batch((None, b"a")) + batch((None, b"b"))) is Code.invalid_record


def test_an_old_format_and_a_cut_batch_are_refused() -> None:
    data = bytearray(batch((None, b"a")))
    data[16] = 1
    assert code_of(resealed(data)) is Code.invalid_record
    assert code_of(bytes(data[:40])) is Code.invalid_record
    assert code_of(b"") is Code.invalid_record


def test_too_large_a_batch_is_refused() -> None:
    assert code_of(batch((None, bytes(2 << 20)))) is Code.message_too_large


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_small_batch_that_decompresses_to_a_huge_one_is_refused(codec: int) -> None:
    data = batch((None, bytes(8 << 20)), compression=codec)
    limits = LIMITS._replace(max_bytes=16 << 20)
    assert code_of(data, limits) is Code.invalid_record


def test_xerial_snappy_of_the_java_client_is_taken() -> None:
    plain = batch((b"k", b"v" * 500))
    block = bytes(cramjam.snappy.compress_raw(plain[61:]))
    body = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    data = bytearray(plain[:61] + body)
    data[22] |= SNAPPY
    struct.pack_into(">i", data, 8, len(data) - 12)
    assert check(resealed(data), LIMITS, NOW).records == 1


def test_times_too_far_ahead_are_refused_unless_the_broker_sets_them() -> None:
    data = batch((None, b"a"), timestamp=NOW + 3_700_000)
    assert code_of(data) is Code.invalid_timestamp
    check(data, LIMITS._replace(append_time=True), NOW)


def test_the_highest_timestamp_is_the_records_own() -> None:
    """A header that lies would keep a batch for ever, and mislead who searches by time."""
    data = bytearray(batch((None, b"a"), (None, b"b"), timestamp=NOW))
    struct.pack_into(">q", data, 35, 2**60)
    assert check(resealed(data), LIMITS, NOW).max_timestamp == NOW + 1


def test_a_producer_id_comes_with_a_sequence_number() -> None:
    assert code_of(batch((None, b"a"), producer=(7, 0, -1))) is Code.invalid_record


def test_a_compacted_topic_wants_keys() -> None:
    limits = LIMITS._replace(keys_required=True)
    assert code_of(batch((b"k", b"a"), (None, b"b")), limits) is Code.invalid_record


def test_the_place_in_the_log_is_written_and_the_rest_stays() -> None:
    data = batch((b"k", b"a"), (None, b"b"))
    placed = stamped(data, read_header(data), 1000, None)
    assert read_header(placed).base_offset == 1000
    assert placed[16:] == data[16:]
    assert [each.offset for each in records(placed, 1 << 20)] == [1000, 1001]


def test_with_append_time_every_record_has_the_brokers_time() -> None:
    data = batch((b"k", b"a"), (None, b"b"))
    placed = stamped(data, read_header(data), 5, NOW)
    assert crc32c(placed[21:]) == read_header(placed).crc
    assert code_of(placed) is Code.invalid_timestamp  # a client may not claim it
    assert {each.timestamp for each in records(placed, 1 << 20)} == {NOW}


@given(values, st.sampled_from([0, GZIP, LZ4]), st.data())
def test_a_compacted_batch_keeps_the_offsets_and_times_of_what_stays(
    pairs: list[tuple[bytes | None, bytes | None]], codec: int, data: st.DataObject
) -> None:
    raw = batch(*pairs, compression=codec)
    placed = stamped(raw, read_header(raw), 7, None)
    before = list(records(placed, 1 << 20))
    kept = data.draw(st.lists(st.sampled_from(before), min_size=1, unique_by=lambda r: r.offset))
    kept.sort(key=lambda record: record.offset)
    made = rebuilt(placed, kept, max(record.timestamp for record in kept))
    assert crc32c(made[21:]) == read_header(made).crc
    assert read_header(made).last_offset_delta == len(pairs) - 1
    after = [(each.offset, each.timestamp, each.key, each.value) for each in records(made, 1 << 20)]
    assert after == [(each.offset, each.timestamp, each.key, each.value) for each in kept]


def test_gzip_of_other_libraries_is_taken() -> None:
    plain = batch((b"k", b"v"))
    for body in (gzip.compress(plain[61:]), _gzip(plain[61:])):
        data = bytearray(plain[:61] + body)
        data[22] |= GZIP
        struct.pack_into(">i", data, 8, len(data) - 12)
        assert check(resealed(data), LIMITS, NOW).records == 1


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()
