"""Where a client wants to go on: `Last-Event-ID` or `?starting_after`."""

import re
from typing import NamedTuple
from urllib.parse import parse_qs

from pipeline.log import LogUnavailable
from schemas.codec import Unreadable
from schemas.errors import Refusal
from schemas.folds import SlotFold
from schemas.tokens import Chunk, decode_event

from .edge import Edge
from .exchange import Exchange
from .feeds import Feed
from .follow import no_broker
from .frames import NATIVE, OPENAI, Frames

EVENT_ID = re.compile(r"(\d{1,18})-(\d{1,9})(?:\.(\d{1,9}))?")
FORMATS = (NATIVE, OPENAI)


class Cursor(NamedTuple):
    """After the frame `j` of the record at `offset`, which ended at `seq`; offset −1: only `seq` is
    known."""

    offset: int
    seq: int
    j: int = 0


def query_of(exchange: Exchange) -> tuple[str, Cursor | None]:
    """Framing and cursor of a request for events. Raises Refusal."""
    query = parse_qs(exchange.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    framing = query.get("format", [NATIVE])[-1]
    if framing not in FORMATS:
        raise Refusal(
            "invalid_value", f"format must be one of {', '.join(FORMATS)}", param="format"
        )
    header = exchange.header(b"last-event-id")
    if header:
        return framing, parse(header)
    if "starting_after" in query:
        given = query["starting_after"][-1]
        if not re.fullmatch(r"\d{1,9}", given):
            raise bad("starting_after must be the number of tokens that you have", "starting_after")
        return framing, Cursor(-1, int(given))
    return framing, None


def parse(text: str) -> Cursor:
    """Raises Refusal."""
    match = EVENT_ID.fullmatch(text)
    if match is None:
        raise bad("an event id is <offset>-<seq> or <offset>-<seq>.<j>")
    return Cursor(int(match[1]), int(match[2]), int(match[3] or 0))


def bad(message: str, param: str = "Last-Event-ID") -> Refusal:
    return Refusal("invalid_event_id", message, param=param)


async def place(edge: Edge, feed: Feed, frames: Frames, cursor: Cursor) -> None:
    """Set the feed to go on behind the cursor. Raises Refusal.

    The record at `offset` itself is read again: its attempt was in force there. Only a record of a
    single choice's tokens says enough; otherwise, and where the log has dropped the offset, the fold
    begins at the request's birth and what was seen is not shown.
    """
    if cursor.offset < 0:
        frames.floor = cursor.seq
        return
    at = edge.tails.slot(feed.request_id)
    try:
        end = (await edge.member.log.admin.end_offsets([at]))[at]
    except LogUnavailable as error:
        raise no_broker(error) from error
    if cursor.offset >= end:
        raise bad("this event is not in the log yet")
    record = await edge.follower.record_at(at, cursor.offset)
    if record is None:
        frames.floor, frames.hole = cursor.seq, True
        return
    if record.key != feed.key:
        raise bad(f"this event is not of {feed.request_id}")
    frames.after, frames.cursor_seq = (cursor.offset, cursor.j), cursor.seq
    try:
        event = decode_event(record.value)
    except Unreadable:
        return
    if not isinstance(event, Chunk) or event.choice != 0:
        return
    if frames.kind == "text" and event.logprobs is not None:
        return  # its `text_offset` counts from the beginning
    if event.k + len(event.ids) == cursor.seq:
        frames.fold = SlotFold.resume(event.attempt, event.k)
        feed.position = cursor.offset - 1


def check(feed: Feed, frames: Frames, cursor: Cursor) -> None:
    """After the past was read: the event must have been there. Raises Refusal."""
    if frames.hole:
        return  # the log has dropped its beginning; the rest comes with the end
    if cursor.offset < 0:
        said = frames.fold.seq if feed.end is None else max(frames.fold.seq, feed.end[1].tokens)
        if cursor.seq > said:
            raise bad(f"the request has {said} tokens so far", "starting_after")
        return
    if feed.end is not None and feed.end[0] == cursor.offset:
        found = cursor.seq == max(frames.fold.seq, feed.end[1].tokens)
    else:
        found = frames.matched or feed.position < cursor.offset
    if not found:
        raise bad(f"{feed.request_id} never had this event")
