"""Packed requests are byte for byte what the client's own schemas write, and read as they do."""

import pytest
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v11
from aiokafka.protocol.produce import ProduceRequest, ProduceResponse_v7
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.packed import (
    FETCH,
    PRODUCE,
    Produced,
    pack_fetch,
    pack_produce,
    unpack_fetch,
    unpack_produce,
)

names = st.text("abcdefgh.-_é", min_size=1, max_size=20)
int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
asked = st.dictionaries(
    names, st.lists(st.tuples(int32, int64), min_size=1, max_size=5), max_size=4
)
aborted = st.lists(st.tuples(int64, int64), max_size=3)
error = st.integers(-1, 120)
state = st.tuples(int32, error, int64, int64, int64, aborted, int32, st.binary(max_size=64))
answered = st.lists(st.tuples(names, st.lists(state, max_size=5)), max_size=4)


def spoken(request: tuple[int, int]) -> dict[int, tuple[int, int]]:
    """The versions of a broker that knows one only."""
    key, version = request
    return {key: (version, version)}


@given(int32, int32, int32, asked)
def test_a_request_is_written_as_the_client_writes_it(
    wait: int, most: int, each: int, topics: dict[str, list[tuple[int, int]]]
) -> None:
    fields = [
        (topic, [(partition, offset, each) for partition, offset in places])
        for topic, places in topics.items()
    ]
    theirs = FetchRequest(wait, 1, most, 0, fields).prepare(spoken(FETCH))
    flat = [((topic, p), offset) for topic, places in topics.items() for p, offset in places]
    assert pack_fetch(flat, wait=wait, most=most, most_each=each) == theirs.encode()


def test_the_order_of_partitions_is_kept() -> None:
    order = [(("a", 1), 10), (("b", 0), 20), (("a", 0), 30)]
    theirs = FetchRequest(
        9, 1, 8, 0, [("a", [(1, 10, 7)]), ("b", [(0, 20, 7)]), ("a", [(0, 30, 7)])]
    )
    packed = pack_fetch(order, wait=9, most=8, most_each=7)
    assert packed == theirs.prepare(spoken(FETCH)).encode()


@given(int32, error, int32, answered)
def test_an_answer_is_read_as_the_client_reads_it(
    throttle: int, code: int, session: int, topics: list[tuple[str, list[tuple[object, ...]]]]
) -> None:
    raw = FetchResponse_v11(throttle, code, session, topics).encode()
    told, partitions = unpack_fetch(memoryview(raw))
    assert told == code
    assert [(each.at, each.error, each.end, bytes(each.batches)) for each in partitions] == [
        ((name, part[0]), part[1], part[2], part[7]) for name, parts in topics for part in parts
    ]


def test_an_answer_that_is_cut_short_is_refused() -> None:
    topics = [("t", [(0, 0, 1, 1, 0, [], -1, b"batches")])]
    raw = FetchResponse_v11(0, 0, 0, topics).encode()
    for length in range(len(raw)):
        with pytest.raises(ValueError):
            unpack_fetch(memoryview(raw)[:length])


batches = st.dictionaries(
    names, st.lists(st.tuples(int32, st.binary(max_size=64)), min_size=1, max_size=4), max_size=4
)
placed = st.tuples(int32, error, int64, int64, int64)


@given(int32, batches)
def test_batches_are_written_as_the_client_writes_them(
    timeout: int, topics: dict[str, list[tuple[int, bytes]]]
) -> None:
    theirs = ProduceRequest(None, -1, timeout, list(topics.items())).prepare(spoken(PRODUCE))
    flat = [((topic, p), raw) for topic, found in topics.items() for p, raw in found]
    assert pack_produce(flat, timeout=timeout) == theirs.encode()


@given(st.lists(st.tuples(names, st.lists(placed, max_size=5)), max_size=4), int32)
def test_acks_are_read_as_the_client_reads_them(
    topics: list[tuple[str, list[tuple[int, int, int, int, int]]]], throttle: int
) -> None:
    raw = ProduceResponse_v7(topics, throttle).encode()
    assert unpack_produce(memoryview(raw)) == [
        Produced((name, p), code, offset, stamp)
        for name, parts in topics
        for p, code, offset, stamp, _ in parts
    ]


def test_acks_that_are_cut_short_are_refused() -> None:
    raw = ProduceResponse_v7([("t", [(0, 0, 7, -1, 0)])], 0).encode()[:-4]  # without the throttle
    for length in range(len(raw)):
        with pytest.raises(ValueError):
            unpack_produce(memoryview(raw)[:length])
