"""Kafka's wire format through kio: which APIs and versions there are, requests in, answers out.

A handler answers with plain dicts that hold the fields of *every* version it serves; `encode`
takes those that the asked version has. Times in them are ms.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from pipeline.embedded import packed
from pipeline.embedded.guard import Malformed, Walk, plan

Answer = dict[str, Any]


class Api(NamedTuple):
    """One API: kio's name for it and the versions advertised.

    The lower ends are Kafka 4's. The upper ends avoid topic ids, transactions and KIP-848: they
    decide what clients do.
    """

    name: str
    least: int
    most: int


APIS: dict[int, Api] = {
    0: Api("produce", 3, 9),
    1: Api("fetch", 4, 12),
    2: Api("list_offsets", 1, 7),
    3: Api("metadata", 0, 8),  # librdkafka writes version 9 wrong, and kio reads it strictly
    8: Api("offset_commit", 2, 8),
    9: Api("offset_fetch", 1, 8),
    10: Api("find_coordinator", 0, 4),
    11: Api("join_group", 2, 9),
    12: Api("heartbeat", 0, 4),
    13: Api("leave_group", 0, 5),
    14: Api("sync_group", 0, 5),
    15: Api("describe_groups", 0, 5),
    16: Api("list_groups", 0, 4),
    18: Api("api_versions", 0, 3),
    19: Api("create_topics", 2, 6),
    20: Api("delete_topics", 1, 5),
    21: Api("delete_records", 0, 2),
    22: Api("init_producer_id", 0, 4),
    32: Api("describe_configs", 1, 4),
    33: Api("alter_configs", 0, 2),
    37: Api("create_partitions", 0, 3),
    42: Api("delete_groups", 0, 2),
    44: Api("incremental_alter_configs", 0, 1),
    60: Api("describe_cluster", 0, 1),
}
API_VERSIONS = 18
_PREFIX = struct.Struct(">hhi")


class Request(NamedTuple):
    """One request. `body` is kio's dataclass of that API and version."""

    key: int
    version: int
    correlation: int
    client_id: str | None
    body: Any


class _Codec(NamedTuple):
    plan: tuple[Any, ...]
    read: Callable[[bytes, int], tuple[Any, int]]
    fill: Callable[[Answer], Any]
    write: Callable[[io.BytesIO, Any], None]
    flexible_request: bool  # its header ends with tagged fields
    flexible: bool  # the answer's header does


def decode(frame: bytes) -> Request:
    """A frame, without its length, as a request; raises `Malformed`.

    Of an API version that is unknown only the header's fixed part is read, and `body` is None.
    """
    if len(frame) < _PREFIX.size:
        raise Malformed(f"a frame of {len(frame)} bytes")
    key, version, correlation = _PREFIX.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise Malformed(f"API {key} is not served")
    if not api.least <= version <= api.most:
        if key == API_VERSIONS:
            return Request(key, version, correlation, None, None)
        raise Malformed(f"version {version} of {api.name} is not served")
    codec = _codec(key, version)
    walk = Walk(frame, _PREFIX.size, flexible=codec.flexible_request)
    client_id = walk.string()
    if codec.flexible_request:
        walk.tags()
    start = walk.at
    walk.through(codec.plan)
    try:
        body, _ = codec.read(frame, start)
        name = None if client_id is None else client_id.decode()
    except (SerialError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise Malformed(f"{api.name} v{version}: {error}") from error
    return Request(key, version, correlation, name, body)


def encode(request: Request, version: int, answer: Answer) -> bytes:
    """The answer as a frame, with its length."""
    if (request.key, version) == (packed.FETCH, packed.VERSION):
        return packed.fetched(request.correlation, answer)
    codec = _codec(request.key, version)
    buffer = io.BytesIO()
    buffer.write(struct.pack(">ii", 0, request.correlation))
    if codec.flexible:
        buffer.write(b"\0")
    codec.write(buffer, codec.fill(answer))
    frame = buffer.getbuffer()
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    frame.release()
    return buffer.getvalue()


@functools.cache
def _codec(key: int, version: int) -> _Codec:
    # imported at first use: all of kio's codecs are 47 MB and a second
    name = APIS[key].name
    request, response = entity_of(name, version, "Request"), entity_of(name, version, "Response")
    return _Codec(
        plan=plan(request),
        read=entity_reader(request),
        fill=filler(response),
        write=entity_writer(response),
        flexible_request=bool(request.__header_schema__.__flexible__),
        flexible=bool(response.__header_schema__.__flexible__),
    )


def entity_of(name: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind.lower()}")
    return getattr(module, name.title().replace("_", "") + kind)


@functools.cache
def filler(entity: Any) -> Callable[[Answer], Any]:
    """A function that makes the entity from a dict, its nested entities included."""
    plan = [_field_plan(field) for field in dataclasses.fields(entity)]

    def fill(values: Answer) -> Any:
        filled = {}
        for name, convert, default in plan:
            value = values.get(name, default)
            if value is dataclasses.MISSING:
                raise TypeError(f"{entity.__name__} needs {name}")
            filled[name] = value if convert is None or value is default else convert(value)
        return entity(**filled)

    return fill


def _field_plan(field: dataclasses.Field[Any]) -> tuple[str, Callable[[Any], Any] | None, Any]:
    kind = field.metadata.get("kafka_type")
    if field.name == "throttle_time":
        return field.name, _duration, datetime.timedelta(0)
    if kind == "error_code":
        return field.name, None, ErrorCode.none
    if kind == "datetime_i64":
        return field.name, _moment, field.default
    if kind is None and "tag" not in field.metadata:
        make = filler(_item_type(field.type))
        return (
            field.name,
            lambda items: None if items is None else tuple(make(each) for each in items),
            field.default,
        )
    return field.name, None, field.default


def _item_type(annotation: Any) -> Any:
    """The entity in `tuple[Entity, ...]` or `tuple[Entity, ...] | None`."""
    array = next(each for each in (annotation, *get_args(annotation)) if get_origin(each) is tuple)
    return get_args(array)[0]


def _duration(ms: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=ms)


def _moment(ms: int | None) -> datetime.datetime | None:
    return None if ms is None else datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def milliseconds(duration: datetime.timedelta) -> int:
    """kio's durations as ms."""
    return duration // datetime.timedelta(milliseconds=1)
