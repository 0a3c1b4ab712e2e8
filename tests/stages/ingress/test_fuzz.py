"""Whatever is published, each record gets exactly one answer, and the stage lives on."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.log import Outgoing, Record, TopicPartition
from pipeline.settings import IngressSettings
from pipeline.stage import Context, DeadLetter, Emit
from schemas.codec import decode, tag_of
from schemas.ids import mint
from schemas.ledger import Output
from stages.ingress import outcomes
from stages.ingress.draft import choose_lane, set_deadline
from stages.ingress.prompt import budget, find_model, tokenise
from stages.ingress.stage import Ingress
from stages.ingress.uses import Uses
from stages.ingress.vocabularies import Languages
from tests.stages.ingress.stand import HELLO, MODEL, TOPICS
from tests.stages.ingress.untrodden import Untrodden

NOW = 1_764_547_200_000
PLACE = TopicPartition(TOPICS.requests, 0)


class Clock:
    def ms(self) -> int:
        return NOW


def stage() -> Ingress:
    limits = IngressSettings()
    steps = (
        choose_lane,
        set_deadline(limits),
        find_model({"words": MODEL}, Languages(Path("/nowhere"), lambda: NOW)),
        tokenise,
        budget(limits.output_limit),
    )
    return Ingress(TOPICS, Uses(Untrodden()), steps, body_limit=65_536)


async def answers(record: Record) -> list[Emit]:
    context = Context(record, Clock(), random.Random(1))
    return [each async for each in stage()(record.value or b"", context)]


_odd = st.binary(max_size=40) | st.sampled_from(
    [
        *(b"", b"gold", b"default", str(NOW + 1000).encode(), b"-1", b"1e9", b"\xff", b"req_x"),
        *(b"application/json", b"application/x-msgpack", mint(NOW, random.Random(3)).encode()),
    ]
)
_headers = st.lists(
    st.tuples(
        st.sampled_from(
            ["tenant", "lane", "deadline", "correlation-id", "request-id", "content-type", "x"]
        ),
        _odd,
    ),
    max_size=4,
)
_bodies = st.dictionaries(
    st.sampled_from(["id", "model", "messages", "prompt", "max_tokens", "stop", "seed", "timeout"]),
    st.sampled_from([None, 1, -1, "words", [], {}, [1, 2], HELLO["messages"], 0.5, "", True]),
    max_size=4,
).map(lambda more: HELLO | more)
_values = (
    st.none()
    | st.binary(max_size=60)
    | _bodies.map(lambda body: json.dumps(body).encode())
    | _bodies.map(msgspec.msgpack.encode)
)


@settings(max_examples=200, deadline=None)
@given(value=_values, key=st.none() | _odd, headers=_headers)
def test_every_record_gets_one_answer(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    record = Record(*PLACE, 7, NOW, key, value, tuple(headers))
    said = asyncio.run(answers(record))
    if isinstance(said[0], DeadLetter):
        (dead,) = said
        assert isinstance(dead, DeadLetter)
        output = outcomes.of_dead_letter(record, dead, NOW)
        assert output.outcome == "refused"
        return
    topics = [each.topic for each in said if isinstance(each, Outgoing)]
    assert len(topics) == len(said)
    if topics == [TOPICS.ledger]:
        assert tag_of(_output(said[0])) == "output/1"
    else:
        assert topics[0] == TOPICS.tokens
        assert topics[1].startswith("hr.ready.") and len(topics) == 2


def _output(emit: Any) -> Output:
    output: Output = decode(emit.value, Output)
    return output
