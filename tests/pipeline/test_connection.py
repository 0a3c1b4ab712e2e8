"""An answer reaches its request however it is cut; a connection that is out of step is ended."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors as kafka
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.connection import Connection


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def set_protocol(self, protocol: object) -> None: ...

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


def connection(**versions: tuple[int, int]) -> tuple[Connection, Transport]:
    transport = Transport()
    opened: Any = SimpleNamespace(
        _writer=SimpleNamespace(transport=transport),
        _read_task=SimpleNamespace(cancel=lambda: None),
        _versions={int(key[1:]): span for key, span in versions.items()},
        close=lambda: None,
    )
    return Connection(opened, "me"), transport


def frame(number: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


@given(st.binary(max_size=40), st.lists(st.integers(1, 12), max_size=60))
def test_an_answer_may_come_in_any_pieces(body: bytes, sizes: list[int]) -> None:
    made, _ = connection()
    for number in (1, 2):
        told: list[bytes] = []
        made.request((1, 11), b"?", lambda raw, told=told: told.append(bytes(raw)))  # type: ignore[misc]
        raw = frame(number, body)
        for size in sizes:
            if len(raw) > size:
                made.data_received(raw[:size])
                raw = raw[size:]
        assert told == []
        made.data_received(raw)
        assert told == [body]


def test_a_request_carries_its_version_and_our_name() -> None:
    made, transport = connection()
    made.request((1, 11), b"body", lambda raw: None)
    head = struct.pack(">ihhih", 16, 1, 11, 1, 2)
    assert transport.written == [head + b"me" + b"body"]


@pytest.mark.parametrize(
    "raw", [frame(7, b""), struct.pack(">ii", -1, 1), struct.pack(">ii", 3, 1)]
)
def test_an_answer_to_nothing_ends_it(raw: bytes) -> None:
    made, transport = connection()
    told: list[object] = []
    made.request((1, 11), b"", told.append)
    made.data_received(raw)
    assert transport.aborted and not told
    made.connection_lost(None)
    assert told == [None] and made.ended


def test_who_closes_it_hears_no_more() -> None:
    made, _ = connection()
    told: list[object] = []
    made.request((1, 11), b"", told.append)
    made.close()
    made.connection_lost(None)
    assert told == []


def test_a_broker_that_is_too_old_is_named() -> None:
    made, _ = connection(_1=(4, 10))
    made.require((1, 10))
    with pytest.raises(kafka.IncompatibleBrokerVersion, match=r"4–10.*Kafka 2\.4 or later"):
        made.require((1, 11))
