"""A stream that was cut goes on at any edge, byte for byte, on either framing."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any

import pytest

from tests.flow.installation import Installation
from tests.flow.streams import Frame, all_frames, get, open_stream, read_frame
from tests.flow.waiting import until

CUTS = 50
TOKENS = 60
LONG = 160  # at 20 a second: eight seconds for an edge to start in
CHAT = {"model": "null", "messages": [{"role": "user", "content": "Go on"}], "stream": True}
FRAMINGS = ("openai", "native")

pytestmark = pytest.mark.timeout(400)


def joined(frames: list[Frame]) -> bytes:
    """What a client has of the log: frames with an id; others are an edge's own."""
    return b"".join(frame.raw for frame in frames if frame.id is not None)


@dataclass
class Client:
    """One client's stream: what it has read of it so far."""

    framing: str
    request_id: str
    answer: HTTPResponse
    read: list[Frame] = field(default_factory=list)

    def read_frames(self, count: int) -> None:
        while count > len([frame for frame in self.read if frame.id is not None]):
            frame = read_frame(self.answer)
            assert frame is not None, "the stream ended before it was cut"
            self.read.append(frame)

    @property
    def last(self) -> str:
        return [frame.id for frame in self.read if frame.id is not None][-1]


def opened(url: str, path: str, body: Any = None, last: str | None = None) -> HTTPResponse:
    """A stream; asked for again while the edge says that it cannot see the broker."""

    def answer() -> HTTPResponse | None:
        _, found = open_stream(url, path, body, {"Last-Event-ID": last} if last else {})
        if found.status == 503:
            assert int(found.getheader("Retry-After") or 0) >= 1
            return None
        assert found.status == 200, found.read()
        return found

    found = until(answer)
    assert found is not None
    return found


def begin(fleet: Installation, framing: str, edge: int = 1, tokens: int = TOKENS) -> Client:
    """A chat stream; natively its events, from the beginning."""
    answer = opened(fleet.url(edge), "/v1/chat/completions", {**CHAT, "max_tokens": tokens})
    client = Client(framing, answer.getheader("Headrace-Request-Id") or "", answer)
    if framing == "native":
        client.answer = resume(fleet, edge, client, None)
    return client


def resume(fleet: Installation, edge: int, client: Client, last: str | None) -> HTTPResponse:
    path = f"/v1/requests/{client.request_id}/events"
    path += "?format=openai" if client.framing == "openai" else ""
    return opened(fleet.url(edge), path, last=last)


def rest(fleet: Installation, edge: int, client: Client, last: str | None = None) -> list[Frame]:
    return all_frames(resume(fleet, edge, client, last))


def check_cuts_everywhere(fleet: Installation, edge: int, client: Client, whole: bytes) -> None:
    """50 cuts of a finished stream, each continued at this edge."""
    frames = [frame for frame in rest(fleet, edge, client) if frame.id is not None]
    chance = random.Random(7)
    for _ in range(CUTS):
        k = chance.randrange(len(frames))
        again = rest(fleet, edge, client, frames[k].id)
        assert joined(frames[: k + 1]) + joined(again) == whole, f"cut behind {frames[k].id}"


def test_a_finished_stream_is_the_same_behind_every_cut(fleet: Installation) -> None:
    """At the other edge; and again when the broker was killed in between."""
    clients = [begin(fleet, framing) for framing in FRAMINGS]
    uncut = [joined(all_frames(client.answer)) for client in clients]
    for killed in (False, True):
        if killed:
            fleet.restart("broker")
        for client, whole in zip(clients, uncut, strict=True):
            check_cuts_everywhere(fleet, 2, client, whole)


def test_running_streams_survive_their_edge(fleet: Installation) -> None:
    """Begun on one edge, cut by kill -9, continued on an edge that was started after they began."""
    chance = random.Random(3)
    cuts = [chance.randrange(1, TOKENS // 2) for _ in range(CUTS)]
    with ThreadPoolExecutor(CUTS) as threads:
        framings = [FRAMINGS[number % 2] for number in range(CUTS)]
        clients = list(threads.map(lambda each: begin(fleet, each, tokens=LONG), framings))
        younger = threads.submit(fleet.restart, "edge-2")  # younger than every stream
        list(threads.map(Client.read_frames, clients, cuts))
        younger.result()
        first = fleet.kill("edge-1")
        resumed = list(threads.map(lambda each: rest(fleet, 2, each, each.last), clients))
        fleet.until_ready("edge-1", other_than=first)
        uncut = list(threads.map(lambda each: rest(fleet, 1, each), clients))
    for client, again, whole in zip(clients, resumed, uncut, strict=True):
        assert joined(client.read) + joined(again) == joined(whole), client
        assert client.framing == "native" or b"[DONE]" in again[-1].raw


def test_running_streams_survive_the_broker(fleet: Installation) -> None:
    clients = [begin(fleet, framing) for framing in FRAMINGS]
    for client in clients:
        client.read_frames(5)
    fleet.restart("broker")
    for client in clients:
        again = rest(fleet, 2, client, client.last)
        assert joined(client.read) + joined(again) == joined(rest(fleet, 1, client))


@pytest.mark.parametrize(
    "last", ["nonsense", "1-2-3", "-5-1", "99999999-1", "0-99999", "12", "1-1.x"]
)
def test_an_event_id_that_cannot_be_is_refused(fleet: Installation, last: str) -> None:
    client = begin(fleet, "openai", tokens=4)
    all_frames(client.answer)
    status, headers, body = get(
        fleet.url(), f"/v1/requests/{client.request_id}/events", {"Last-Event-ID": last}
    )
    assert status == 400 and body["error"]["code"] == "invalid_event_id"
    assert headers["headrace-reason"] == "invalid_event_id"
