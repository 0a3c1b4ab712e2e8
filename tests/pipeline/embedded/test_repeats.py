"""What is asked again is answered as if it were asked for the first time."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.embedded.errors import Code
from pipeline.embedded.protocol import decode, encode
from pipeline.embedded.repeats import Repeats
from tests.pipeline.embedded.conftest import Inside
from tests.pipeline.embedded.scene import T0, create, fetch, produce, records_of
from tests.pipeline.embedded.wire import Wire, batch

HEARTBEAT = 12


def heartbeat(version: int, correlation: int, group: str) -> bytes:
    head = struct.pack(">hhih", HEARTBEAT, version, correlation, -1)
    name = group.encode()
    return b"".join(
        (head, struct.pack(">h", len(name)), name, struct.pack(">ih", 3, 1), b"m")
        + ((b"\xff\xff",) if version == 3 else ())
    )


asked = st.tuples(
    st.sampled_from([1, 2, 3]),  # version
    st.integers(-(2**31), 2**31 - 1),  # correlation id
    st.sampled_from(["g", "h", "g" * 20_000]),  # group; the last frame is too long to remember
    st.sampled_from([Code.none, Code.illegal_generation, Code.unknown_member_id]),  # the answer
)


@given(st.lists(asked, max_size=12))
def test_remembering_changes_no_byte(calls: list[tuple[int, int, str, int]]) -> None:
    repeats = Repeats()
    for version, correlation, group, code in calls:
        frame = heartbeat(version, correlation, group)
        answer = {"error_code": code}
        request = repeats.decode(frame)
        assert request == decode(frame)
        assert repeats.encode(request, version, answer) == encode(request, version, answer)


async def test_a_reader_that_asks_the_same_again_gets_what_is_new(inside: Inside) -> None:
    async def offsets_at_end() -> tuple[Any, list[Any]]:
        answer = await fetch(wire, "repeated", 0)
        part = answer.responses[0].partitions[0]
        return part.high_watermark, [each[0] for each in records_of(answer)]

    async with await Wire.connect(inside.bootstrap) as wire:
        await create(wire, "repeated")
        assert [await offsets_at_end() for _ in range(3)] == [(0, [])] * 3
        async with await Wire.connect(inside.bootstrap) as other:
            await produce(other, "repeated", batch((None, b"a"), timestamp=T0))
            assert [await offsets_at_end() for _ in range(2)] == [(1, [0])] * 2
            await produce(other, "repeated", batch((None, b"b"), timestamp=T0))
        assert await offsets_at_end() == (2, [0, 1])
