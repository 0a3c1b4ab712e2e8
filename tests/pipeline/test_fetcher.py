"""Fetches to several leaders: each is asked for what it leads, from where the reader is, come what may."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11

from pipeline.kafka import fetcher
from pipeline.kafka.connection import Answered
from pipeline.kafka.fetcher import Fetcher
from pipeline.log import NotOwner, TopicPartition
from tests.pipeline.test_records import batch, values

A, B, C = (TopicPartition("t", partition) for partition in range(3))
NOT_LEADER, OUT_OF_RANGE = 6, 1
LIMIT = 20.0  # s


class Connection:
    """A broker that answers when the test says so."""

    def __init__(self, is_asked: asyncio.Event) -> None:
        self.is_asked = is_asked
        self.ended = False
        self.answered: Answered | None = None
        self.asked: list[tuple[int, int]] = []  # partition, offset of the fetch that is out

    def request(self, what: tuple[int, int], body: bytes, answered: Answered) -> None:
        assert self.answered is None, "a second fetch"
        self.answered = answered
        topics = FetchRequest_v11.decode(body).topics
        self.is_asked.set()
        self.asked = [(p, offset) for _, parts in topics for p, _, offset, *_ in parts]

    def close(self) -> None:
        self.ended, self.answered = True, None

    def answer(self, **came: bytes | int) -> None:
        """`p0=batches`, `p1=error code`; nothing for the others."""
        parts: list[Any] = []
        for partition, _ in self.asked:
            found = came.get(f"p{partition}", b"")
            code, batches = (found, b"") if isinstance(found, int) else (0, found)
            parts.append((partition, code, 100, 100, 0, [], -1, batches))
        self.tell(FetchResponse_v11(0, 0, 0, [("t", parts)]).encode())

    def tell(self, raw: bytes | None) -> None:
        answered, self.answered = self.answered, None
        assert answered is not None, "nothing is asked"
        answered(None if raw is None else memoryview(raw))


class Cluster:
    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int] = {A: 1, B: 1, C: 2}
        self.after: dict[tuple[str, int], int] = {}  # what a refresh brings
        self.connections: dict[int, Connection] = {}
        self.is_asked = asyncio.Event()

    def leader(self, at: TopicPartition) -> int | None:
        return self.leaders.get(at)

    def watch(self, changed: Callable[[Any], None]) -> None: ...
    def unwatch(self, changed: Callable[[Any], None]) -> None: ...

    async def refresh(self) -> None:
        self.leaders |= self.after

    async def open(self, node: int, name: str) -> Connection:
        self.connections[node] = Connection(self.is_asked)
        return self.connections[node]

    async def asked(self, node: int) -> Connection:
        """Wait until a fetch is out to it."""
        async with asyncio.timeout(LIMIT):
            while node not in self.connections or self.connections[node].answered is None:
                self.is_asked.clear()
                await self.is_asked.wait()
        return self.connections[node]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(fetcher, "PAUSE", 0.01)
    return Cluster()


def reading(cluster: Cluster, **positions: int) -> Fetcher:
    made = Fetcher(cluster, "test")  # type: ignore[arg-type]
    made.assign(dict(zip((A, B, C), (positions.get(n, 0) for n in "abc"), strict=True)))
    return made


async def poll(fetches: Fetcher, most: int = 500) -> list[tuple[int, int]]:
    """Partition and offset of what comes."""
    deadline = asyncio.get_running_loop().time() + LIMIT
    while not (found := fetches.poll(most)):
        assert await fetches.arrival(deadline)
    return [(each.partition, each.offset) for each in found]


async def test_each_leader_is_asked_for_what_it_leads(cluster: Cluster) -> None:
    fetches = reading(cluster, a=5)
    polled = asyncio.create_task(poll(fetches))
    one, two = await cluster.asked(1), await cluster.asked(2)
    assert (one.asked, two.asked) == ([(0, 5), (1, 0)], [(2, 0)])
    two.answer(p2=batch(0, 2))
    assert await polled == [(2, 0), (2, 1)]
    assert fetches.end(C) == 100 and fetches.end(A) is None
    fetches.poll(1)
    assert (one.asked, two.asked) == ([(0, 5), (1, 0)], [(2, 2)])


async def test_what_had_records_goes_to_the_end(cluster: Cluster) -> None:
    fetches = reading(cluster)
    polled = asyncio.create_task(poll(fetches))
    one = await cluster.asked(1)
    one.answer(p0=batch(0, 1))
    await polled
    fetches.poll(1)
    assert one.asked == [(1, 0), (0, 1)]


async def test_what_came_is_used_up_before_its_leader_is_asked_again(cluster: Cluster) -> None:
    fetches = reading(cluster)
    polled = asyncio.create_task(poll(fetches, 2))
    one = await cluster.asked(1)
    one.answer(p0=batch(0, 3), p1=batch(0, 1))
    assert await polled == [(0, 0), (0, 1)]
    assert fetches.place(A).position == 2
    assert await poll(fetches, 2) == [(0, 2), (1, 0)]
    assert one.answered is None
    fetches.poll(1)
    assert sorted(one.asked) == [(0, 3), (1, 1)]


async def test_nothing_is_asked_while_nobody_polls(cluster: Cluster) -> None:
    fetches = reading(cluster)
    polled = asyncio.create_task(poll(fetches))
    one = await cluster.asked(1)
    one.answer()
    assert one.answered is not None  # who waits is served: the fetch is sent again
    polled.cancel()
    await asyncio.wait({polled})
    one.answer()
    assert one.answered is None


async def test_a_leader_that_is_none_any_more(cluster: Cluster) -> None:
    cluster.after = {B: 2}
    fetches = reading(cluster, b=7)
    polled = asyncio.create_task(poll(fetches))
    two = await cluster.asked(2)
    two.answer(p2=batch(0, 1))
    assert await polled == [(2, 0)]
    polled = asyncio.create_task(poll(fetches))
    one = await cluster.asked(1)
    one.answer(p1=NOT_LEADER)
    assert (await cluster.asked(1)).asked == [(0, 0)]
    again = await cluster.asked(2)
    assert two.ended  # the partition that came need not wait for the long poll of the others
    assert sorted(again.asked) == [(1, 7), (2, 1)]
    again.answer(p1=batch(7, 1))
    assert await polled == [(1, 7)]


async def test_a_connection_that_ends_is_opened_again(cluster: Cluster) -> None:
    fetches = reading(cluster, a=3)
    polled = asyncio.create_task(poll(fetches))
    old = await cluster.asked(1)
    old.tell(None)
    new = await cluster.asked(1)
    assert new is not old and new.asked == [(0, 3), (1, 0)]
    new.answer(p0=batch(3, 1))
    assert await polled == [(0, 3)]


@pytest.mark.parametrize("raw", [b"", b"too short"])
async def test_an_answer_that_makes_no_sense_is_asked_for_again(
    cluster: Cluster, raw: bytes
) -> None:
    fetches = reading(cluster)
    polled = asyncio.create_task(poll(fetches))
    (await cluster.asked(1)).tell(raw)
    (await cluster.asked(1)).answer(p0=batch(0, 1))
    assert await polled == [(0, 0)]


async def test_a_seek_waits_for_no_long_poll(cluster: Cluster) -> None:
    fetches = reading(cluster)
    polled = asyncio.create_task(poll(fetches))
    old = await cluster.asked(1)
    fetches.seek(A, 40)
    assert old.ended
    new = await cluster.asked(1)
    assert (0, 40) in new.asked
    new.answer(p0=batch(40, 1))
    assert await polled == [(0, 40)]


async def test_a_seek_drops_what_came_and_was_not_taken(cluster: Cluster) -> None:
    fetches = reading(cluster)
    polled = asyncio.create_task(poll(fetches, 1))
    one = await cluster.asked(1)
    one.answer(p0=batch(0, 3), p1=batch(0, 1))
    assert await polled == [(0, 0)]
    fetches.seek(A, 0)
    assert await poll(fetches) == [(1, 0)]
    fetches.poll(1)
    assert sorted(one.asked) == [(0, 0), (1, 1)]


async def test_an_offset_that_is_gone_holds_up_nothing_else(cluster: Cluster) -> None:
    fetches = reading(cluster, a=9)
    polled = asyncio.create_task(poll(fetches))
    one = await cluster.asked(1)
    one.answer(p0=OUT_OF_RANGE, p1=batch(0, 1))
    assert await polled == [(1, 0)]
    fault = fetches.fault()
    assert fault is not None and fault[:2] == (A, 9)
    assert fetches.fault() is None


async def test_another_assignment_ends_what_was_out(cluster: Cluster) -> None:
    fetches = reading(cluster)
    fetches.poll(1)
    old = await cluster.asked(1)
    fetches.assign({C: 4})
    assert old.ended
    with pytest.raises(NotOwner):
        fetches.place(A)
    fetches.poll(1)
    assert (await cluster.asked(2)).asked == [(2, 4)]


async def test_a_record_keeps_its_value_through_all_of_it(cluster: Cluster) -> None:
    fetches = reading(cluster)
    fetches.poll(1)
    (await cluster.asked(2)).answer(p2=batch(0, 4))
    assert values(fetches.poll(3)) == [0, 1, 2]
    assert values(fetches.poll(3)) == [3]
