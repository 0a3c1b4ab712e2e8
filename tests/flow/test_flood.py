"""What nobody can read is kept byte for byte with a reason, ends what it owes, and delays nobody."""

import random

import pytest
from confluent_kafka import Producer

from schemas.ids import partition_of
from tests.chaos.topics import ends
from tests.flow.flood import flood, send
from tests.flow.installation import Installation
from tests.flow.malformed import TOPICS, Bad, odd_headers, values
from tests.flow.streams import all_frames, open_stream, read_frame, unreadable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_bad_record_is_kept_and_every_good_one_is_answered(
    fleet: Installation, topic: str
) -> None:
    wrong = flood(fleet, topic, 50)
    assert not wrong, "\n".join(wrong[:20])


OTHERS = ("tokens", "status", "control", "models")


def test_on_topics_that_owe_nobody_they_are_counted_and_skipped(fleet: Installation) -> None:
    """Under the key of a stream that runs, too: it does not notice."""
    chat = {"model": "null", "prompt": "Go on", "max_tokens": 60, "stream": True}
    _, answer = open_stream(fleet.url(), "/v1/completions", chat)
    mine = answer.getheader("Headrace-Request-Id") or ""
    frames = [read_frame(answer) for _ in range(3)]
    before = {name: unreadable(fleet, name) for name in OTHERS}
    producer, chance = Producer({"bootstrap.servers": fleet.kafka, "acks": "all"}), random.Random(3)
    slot = partition_of(mine, len(ends(fleet.kafka, fleet.topic("tokens"))))
    for value in values(chance):
        for name in OTHERS:
            where = slot if name == "tokens" else 0
            bad = Bad(value, mine.encode(), odd_headers(chance), where)
            if value is not None or name != "status":
                send(producer, fleet.topic(name), bad)
    assert producer.flush(30) == 0
    frames += all_frames(answer)
    assert frames[-1] is not None and frames[-1].data == "[DONE]"
    _, again = open_stream(fleet.url(2), f"/v1/requests/{mine}/events?format=openai")
    kept = [frame.raw for frame in frames if frame is not None and frame.id is not None]
    assert kept == [frame.raw for frame in all_frames(again) if frame.id is not None]
    for name in OTHERS:
        assert unreadable(fleet, name) > before[name], name
