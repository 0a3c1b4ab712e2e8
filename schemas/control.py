"""`hr.control`: wake-ups. Nothing here is an obligation; the ledger holds those."""

import msgspec


class Wake(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="wake/1"):
    """Cancel the attempts of a request up to `attempt`.

    `superseded`: a higher lease counts, drop it and write nothing. Otherwise: stop within one step and
    write `output(n, outcome)`.
    """

    request_id: str
    attempt: int
    superseded: bool = False
    outcome: str = "cancelled"  # or expired


class Attach(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="attach/1"):
    """A client reads the stream; when nobody has for `grace` ms, the owner cancels the request.

    Of several, the largest grace counts. 0 only joins (events of a request that somebody else began): it
    counts as attached while it lasts, and a request that only such streams ever read is never cancelled.
    """

    request_id: str
    stream: str
    edge: str
    epoch: str
    grace: int
    tenant: str = "default"  # these four go into the cancel, if there is one
    lane: str = "silver"
    encoding: str = "msgpack"
    correlation_id: str | None = None


class Detach(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="detach/1"):
    request_id: str
    stream: str
    edge: str
    epoch: str
    gone: bool = True  # False: the stream ended or the edge drains: nothing follows from it


class Load(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="load/1"):
    member: str
    model: str


class Unload(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="unload/1"):
    member: str
    model: str


ControlRecord = Wake | Attach | Detach | Load | Unload
