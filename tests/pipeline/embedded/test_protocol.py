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

from pipeline.embedded.errors import Code
from pipeline.embedded.guard import Malformed
from pipeline.embedded.protocol import APIS, Request, decode, encode, entity_of, filler

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


codes = st.sampled_from([Code.none, Code.offset_out_of_range, Code.unknown_topic_or_partition])
numbers = st.integers(-1, 2**63 - 1)
refused = {"partition_index": st.integers(0, 99), "error_code": codes, "high_watermark": numbers,
           "aborted_transactions": st.sampled_from([None, ()]), "records": st.binary()}  # fmt: skip
read = refused | {"last_stable_offset": numbers, "log_start_offset": numbers}
partitions = st.one_of(st.fixed_dictionaries(refused), st.fixed_dictionaries(read))
topics = st.fixed_dictionaries({"topic": st.text(max_size=9), "partitions": st.lists(partitions)})


@given(st.integers(-(2**31), 2**31 - 1), st.lists(topics), codes)
def test_a_packed_answer_is_byte_for_byte_what_kio_writes(
    correlation: int, responses: list[Any], code: Code
) -> None:
    answer = {"responses": responses, "error_code": code}
    entity = entity_of("fetch", 11, "Response")
    body = io.BytesIO()
    entity_writer(entity)(body, filler(entity)(answer))
    payload = struct.pack(">i", correlation) + body.getvalue()
    request = Request(1, 11, correlation, None, None)
    assert encode(request, 11, answer) == struct.pack(">i", len(payload)) + payload
