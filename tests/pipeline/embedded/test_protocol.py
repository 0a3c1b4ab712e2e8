"""Requests are read as kio writes them, and no bytes whatever can end the process."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.primitive import Records

from pipeline.embedded.guard import Malformed
from pipeline.embedded.protocol import APIS, decode, entity_of

st.register_type_strategy(Records, st.binary(max_size=50))
settings.register_profile("wire", deadline=None, suppress_health_check=list(HealthCheck))
wire = settings.get_profile("wire")

VERSIONS = [(key, v) for key, api in APIS.items() for v in range(api.least, api.most + 1)]


def frame_of(key: int, version: int, body: Any) -> bytes:
    header = body.__header_schema__(
        request_api_key=key, request_api_version=version, correlation_id=7, client_id="me"
    )
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(body))(buffer, body)
    return buffer.getvalue()


def bodies(key: int, version: int) -> st.SearchStrategy[Any]:
    return st.from_type(entity_of(APIS[key].name, version, "Request"))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@settings(wire, max_examples=3)
@given(data=st.data())
def test_every_request_of_every_version_is_read(
    key: int, version: int, data: st.DataObject
) -> None:
    body = data.draw(bodies(key, version))
    request = decode(frame_of(key, version, body))
    assert (request.key, request.version, request.correlation) == (key, version, 7)
    assert request.client_id == "me"
    assert request.body == body


@settings(wire, max_examples=150)
@given(st.sampled_from(VERSIONS), st.data())
def test_a_damaged_request_is_refused_or_read(which: tuple[int, int], data: st.DataObject) -> None:
    """A count or length that lies would make a naive reader ask for more memory than there is."""
    frame = bytearray(frame_of(*which, data.draw(bodies(*which))))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(8, len(frame) - 1))
        wild = data.draw(st.sampled_from([b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x7f"]))
        frame[place : place + len(wild)] = wild
    _decode(bytes(frame))


@settings(wire, max_examples=1000)
@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_noise_after_a_right_header_is_refused_or_read(
    which: tuple[int, int], noise: bytes
) -> None:
    _decode(struct.pack(">hhihb", *which, 7, -1, 0) + noise)


@given(st.binary(max_size=50))
def test_noise_is_refused(noise: bytes) -> None:
    _decode(noise)


def _decode(frame: bytes) -> None:
    try:
        decode(frame)
    except Malformed as error:
        assert str(error)
