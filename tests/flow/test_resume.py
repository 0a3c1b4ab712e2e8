"""A stream that was cut goes on at any edge, byte for byte, on either framing."""

import random

import pytest

from tests.flow.installation import Installation
from tests.flow.streams import Frame, all_frames, get, open_stream, read_frame
from tests.flow.waiting import until

CUTS = 50


def begin(headrace: Installation, edge: int, tokens: int) -> tuple[str, list[Frame], object]:
    """A chat stream at one edge; gives its request id and the open answer."""
    body = {"model": "null", "messages": [{"role": "user", "content": "Go on"}],
            "max_tokens": tokens, "stream": True}  # fmt: skip
    _, answer = open_stream(headrace.url(edge), "/v1/chat/completions", body)
    assert answer.status == 200
    return answer.getheader("Headrace-Request-Id") or "", [], answer


def rest(
    headrace: Installation, edge: int, request_id: str, last: str | None, openai: bool
) -> list[Frame]:
    path = f"/v1/requests/{request_id}/events" + ("?format=openai" if openai else "")
    _, answer = open_stream(
        headrace.url(edge), path, headers={"Last-Event-ID": last} if last else {}
    )
    assert answer.status == 200, answer.read()
    return all_frames(answer)


def joined(frames: list[Frame]) -> bytes:
    """What a client has of the log: frames with an id; others are an edge's own."""
    return b"".join(frame.raw for frame in frames if frame.id is not None)


@pytest.mark.parametrize("openai", [True, False], ids=["openai", "native"])
def test_cut_anywhere_and_resumed_at_the_other_edge_is_byte_identical(
    fleet: Installation, openai: bool
) -> None:
    request_id, _, answer = begin(fleet, 1, 60)
    all_frames(answer)  # type: ignore[arg-type]
    whole = rest(fleet, 1, request_id, None, openai)
    ids = [frame.id for frame in whole if frame.id is not None]
    assert len(ids) > 20
    chance = random.Random(7)
    for _ in range(CUTS):
        k = chance.randrange(len(ids))
        resumed = rest(fleet, 2, request_id, ids[k], openai)
        before = [frame for frame in whole if frame.id in ids[: k + 1]]
        assert joined(before) + joined(resumed) == joined(whole), f"cut behind {ids[k]}"


def test_a_running_stream_survives_its_edge(fleet: Installation) -> None:
    """Begun on one edge, cut by kill -9, continued on an edge that was started after it began."""
    for k in (1, 5, 12):
        request_id, read, answer = begin(fleet, 1, 60)
        for _ in range(k):
            frame = read_frame(answer)  # type: ignore[arg-type]
            assert frame is not None
            read.append(frame)
        second = fleet.kill("edge-2")
        fleet.until_ready("edge-2", other_than=second)  # younger than the stream
        first = fleet.kill("edge-1")
        last = [frame.id for frame in read if frame.id][-1]
        resumed = rest(fleet, 2, request_id, last, openai=True)
        fleet.until_ready("edge-1", other_than=first)
        uncut = rest(fleet, 1, request_id, None, openai=True)
        assert joined(read) + joined(resumed) == joined(uncut)
        assert b"[DONE]" in resumed[-1].raw


def test_a_finished_stream_is_there_after_a_broker_restart(fleet: Installation) -> None:
    if fleet.broker != "embedded":
        pytest.skip("the shared Apache Kafka is restarted by its own tests")
    request_id, _, answer = begin(fleet, 1, 16)
    all_frames(answer)  # type: ignore[arg-type]
    whole = rest(fleet, 1, request_id, None, openai=True)
    old = fleet.kill("broker")
    fleet.until_ready("broker", other_than=old)
    until(lambda: get(fleet.url(2), "/readyz")[0] == 200)
    last = [frame.id for frame in whole if frame.id][3]
    resumed = rest(fleet, 2, request_id, last, openai=True)
    kept = [frame for frame in whole if frame.id is not None][:4]
    assert joined(kept) + joined(resumed) == joined(whole)


@pytest.mark.parametrize(
    "last", ["nonsense", "1-2-3", "-5-1", "99999999-1", "0-99999", "12", "1-1.x"]
)
def test_an_event_id_that_cannot_be_is_refused(fleet: Installation, last: str) -> None:
    request_id, _, answer = begin(fleet, 1, 4)
    all_frames(answer)  # type: ignore[arg-type]
    status, headers, body = get(
        fleet.url(), f"/v1/requests/{request_id}/events", {"Last-Event-ID": last}
    )
    assert status == 400 and body["error"]["code"] == "invalid_event_id"
    assert headers["headrace-reason"] == "invalid_event_id"
