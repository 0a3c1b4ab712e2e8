"""Values and headers: MessagePack by default, JSON for a request that came as JSON.

Every reader takes both: a MessagePack map or array never begins with `{` or `[` of JSON text.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

Headers = tuple[tuple[str, bytes], ...]

JSON = "json"
MSGPACK = "msgpack"
CONTENT_TYPES = {JSON: b"application/json", MSGPACK: b"application/x-msgpack"}

_msgpack = msgspec.msgpack.Encoder()
_json = msgspec.json.Encoder()


class Unreadable(ValueError):
    """Bytes that are no record of the expected kind."""


@cache
def _decoders(kind: Any) -> tuple[msgspec.msgpack.Decoder[Any], msgspec.json.Decoder[Any]]:
    return msgspec.msgpack.Decoder(kind), msgspec.json.Decoder(kind)


def encode(message: msgspec.Struct, encoding: str = MSGPACK) -> bytes:
    return _json.encode(message) if encoding == JSON else _msgpack.encode(message)


def looks_json(value: bytes) -> bool:
    # 0x7b is '{' and 0x5b '[': as MessagePack they are the integers 123 and 91, never a record
    return value[:1] in (b"{", b"[")


def decode(value: bytes | None, kind: Any) -> Any:
    """One record of `kind` (a Struct or a union of them). Raises Unreadable, never anything else."""
    if value is None:
        raise Unreadable("the value is null")
    packed, text = _decoders(kind)
    try:
        return text.decode(value) if looks_json(value) else packed.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Unreadable(str(error)) from error


def encoding_of(headers: Iterable[tuple[str, bytes]], value: bytes) -> str:
    declared = header(headers, "content-type")
    if declared is not None and declared.startswith(b"application/json"):
        return JSON
    return JSON if looks_json(value) else MSGPACK


def header(headers: Iterable[tuple[str, bytes]], name: str) -> bytes | None:
    """The last header of that name, as Kafka's own `lastHeader`."""
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return found


def text_header(headers: Iterable[tuple[str, bytes]], name: str) -> str | None:
    raw = header(headers, name)
    return None if raw is None else raw.decode("utf-8", "replace")


def int_header(headers: Iterable[tuple[str, bytes]], name: str) -> int | None:
    raw = header(headers, name)
    if raw is None or len(raw) > 20:  # a 64-bit integer has at most 20 characters
        return None
    try:
        return int(raw)
    except ValueError:
        return None


def headers_of(
    kind: str,
    *,
    encoding: str = MSGPACK,
    request_id: str | None = None,
    attempt: int | None = None,
    tenant: str | None = None,
    lane: str | None = None,
    deadline: int | None = None,
    correlation_id: str | None = None,
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> Headers:
    """The fixed small header set; `kind` is the record's tag."""
    pairs = [("content-type", CONTENT_TYPES[encoding]), ("type", kind.encode())]
    if request_id is not None:
        pairs.append(("request-id", request_id.encode()))
    if attempt is not None:
        pairs.append(("attempt", b"%d" % attempt))
    if tenant is not None:
        pairs.append(("tenant", tenant.encode()))
    if lane is not None:
        pairs.append(("lane", lane.encode()))
    if deadline is not None:
        pairs.append(("deadline", b"%d" % deadline))
    if correlation_id is not None:
        pairs.append(("correlation-id", correlation_id.encode()))
    if traceparent is not None:
        pairs.append(("traceparent", traceparent.encode()))
    if tracestate is not None:
        pairs.append(("tracestate", tracestate.encode()))
    return tuple(pairs)


def tag_of(message: msgspec.Struct | type[msgspec.Struct]) -> str:
    """The tag of a record, name and major version: `lease/1`."""
    return str(message.__struct_config__.tag)


def name_of(tag: str) -> str:
    """A tag without its version: the ledger fold goes on by it when a version is unknown."""
    return tag.partition("/")[0]
