"""Packed fetches are byte for byte what the client's own schemas write, and read as they do."""

import pytest
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v11, FetchResponse_v11
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.packed import PackedFetch

names = st.text("abcdefgh.-_é", min_size=1, max_size=20)
int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
asked = st.lists(st.tuples(names, st.lists(st.tuples(int32, int64, int32), max_size=5)), max_size=4)
aborted = st.lists(st.tuples(int64, int64), max_size=3)
error = st.integers(-1, 120)
state = st.tuples(int32, error, int64, int64, int64, aborted, int32, st.binary(max_size=64))
answered = st.lists(st.tuples(names, st.lists(state, max_size=5)), max_size=4)


@given(int32, int32, int32, st.integers(0, 1), asked, st.text(max_size=8))
def test_a_request_is_written_as_the_client_writes_it(
    wait: int, least: int, most: int, isolation: int, topics: list[object], rack: str
) -> None:
    spoken = {FetchRequest.API_KEY: (4, 12)}
    arguments = (wait, least, most, isolation, topics, rack)
    packed = PackedFetch(*arguments).prepare(spoken)
    assert packed.encode() == FetchRequest(*arguments).prepare(spoken).encode()
    assert packed.API_VERSION == 11


@given(int32, error, int32, answered)
def test_an_answer_is_read_as_the_client_reads_it(
    throttle: int, code: int, session: int, topics: list[object]
) -> None:
    raw = FetchResponse_v11(throttle, code, session, topics).encode()
    packed = PackedFetch(0, 0, 0, 0, []).build(FetchRequest_v11).RESPONSE_TYPE
    assert packed.decode(raw).to_object() == FetchResponse_v11.decode(raw).to_object()


def test_an_answer_that_is_cut_short_is_refused() -> None:
    topics = [("t", [(0, 0, 1, 1, 0, [], -1, b"batches")])]
    raw = FetchResponse_v11(0, 0, 0, topics).encode()
    packed = PackedFetch(0, 0, 0, 0, []).build(FetchRequest_v11).RESPONSE_TYPE
    for length in range(len(raw)):
        with pytest.raises(ValueError):
            packed.decode(raw[:length])


def test_an_older_broker_is_asked_as_the_client_would() -> None:
    spoken = {FetchRequest.API_KEY: (4, 10)}
    topics = [("t", [(0, 7, 1000)])]
    ours = PackedFetch(500, 1, 1 << 20, 0, topics).prepare(spoken)
    assert ours.API_VERSION == 10
    assert ours.encode() == FetchRequest(500, 1, 1 << 20, 0, topics).prepare(spoken).encode()
