"""A record of `hr.requests` before anything is asked of it: whose it is, since when, which id counts."""

from typing import NamedTuple

from pipeline.log import Record
from schemas import ids
from schemas.codec import MSGPACK, encoding_of, header, text_header
from schemas.errors import Refusal
from schemas.request import LANES

SKEW = 5 * 60_000  # ms that a publisher's clock may be off
REPUBLISHED = 24 * 3_600_000  # ms: an edge publishes a keyed request again that was never read
MAX_CORRELATION = 256  # bytes
MAX_TENANT = 128  # bytes
DEFAULT_TENANT = "default"


class BadId(ValueError):
    """An id that cannot be this record's."""


class Arrival(NamedTuple):
    """What the record's place and headers say. Never raises: what is odd is refused later."""

    record: Record
    encoding: str
    tenant: str
    lane: str | None
    correlation_id: str | None
    accepted: int  # ms, the append time

    @property
    def derived_id(self) -> str:
        """The id that redelivery cannot change."""
        place = self.record
        return ids.derive(place.timestamp, place.topic, place.partition, place.offset)


def arrive(record: Record) -> Arrival:
    headers = record.headers
    lane = text_header(headers, "lane")
    return Arrival(
        record=record,
        encoding=encoding_of(headers, record.value or b""),
        tenant=_text(headers, "tenant", MAX_TENANT) or DEFAULT_TENANT,
        lane=lane if lane in LANES else None,
        correlation_id=_text(headers, "correlation-id", MAX_CORRELATION),
        accepted=record.timestamp,
    )


def supplied_id(record: Record, in_body: object) -> str | None:
    """The id that its publisher gave it: header, body, or a key that is one. Raises BadId."""
    in_header = text_header(record.headers, "request-id")
    in_key = (record.key or b"").decode("utf-8", "replace")
    places = (
        ("header", in_header),
        ("body", in_body),
        ("key", in_key if ids.is_id(in_key) else None),
    )
    given = [(where, id) for where, id in places if id is not None]
    if not given:
        return None
    counts = given[0][1]
    for where, id in given:
        if not isinstance(id, str) or not ids.is_id(id):
            raise BadId(f"the id of the {where}, {str(id)[:64]!r}, is not req_ and a UUIDv7")
        if id != counts:
            raise BadId(f"the ids of {given[0][0]} and {where} differ")
    off = ids.birth(str(counts)) - record.timestamp
    if not timely(str(counts), record):
        raise BadId(f"the id's time is {off / 1000:+.0f} s off; {SKEW // 1000} s are allowed")
    return str(counts)


def minted_by_edge(record: Record) -> bool:
    """Edges write MessagePack and name the id in a header, which nobody else is told to do."""
    packed = encoding_of(record.headers, record.value or b"") == MSGPACK
    return packed and header(record.headers, "request-id") is not None


def timely(request_id: str, record: Record) -> bool:
    """Whether an id was born when its record was written, give or take a clock."""
    off = ids.birth(request_id) - record.timestamp
    return (-REPUBLISHED if minted_by_edge(record) else -SKEW) <= off <= SKEW


def check_headers(record: Record) -> None:
    """Headers that a publisher got wrong. Raises Refusal naming the header."""
    for name, limit in (("tenant", MAX_TENANT), ("correlation-id", MAX_CORRELATION)):
        raw = header(record.headers, name)
        if raw is None:
            continue
        if not 0 < len(raw) <= limit:
            raise Refusal(
                "invalid_value",
                f"header {name} has {len(raw)} bytes; it must have 1 to {limit}",
                param=name,
            )
        if "\ufffd" in raw.decode("utf-8", "replace"):
            raise Refusal("invalid_value", f"header {name} must be UTF-8", param=name)
    lane = text_header(record.headers, "lane")
    if lane is not None and lane not in LANES:
        allowed = ", ".join(LANES)
        raise Refusal(
            "invalid_value",
            f"header lane is {lane[:32]!r}; it must be one of {allowed}",
            param="lane",
        )


def _text(headers: tuple[tuple[str, bytes], ...], name: str, limit: int) -> str | None:
    raw = header(headers, name)
    return None if raw is None else raw[:limit].decode("utf-8", "replace")
