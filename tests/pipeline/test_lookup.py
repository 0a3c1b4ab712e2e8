"""A request is found by its id alone: its partition, and since when it may be there."""

import asyncio

import pytest

from pipeline.log import OffsetGone, Outgoing, TopicPartition, TopicSpec
from pipeline.lookup import ScanBudget, find_ledger, find_result, scan
from pipeline.memory import MemoryCluster, MemoryLog
from pipeline.topics import Topics
from schemas.codec import encode, headers_of, tag_of
from schemas.ledger import Cancel, Released
from schemas.result import Result

ID = "req_01890a5d-ac96-774b-bcce-b302099a8057"
AT = TopicPartition("t", 0)
TOPICS = Topics(ledger_partitions=1)


class Clock:
    now = 1_000

    def ms(self) -> int:
        return self.now


@pytest.fixture
async def log() -> MemoryLog:
    log = MemoryCluster(Clock()).connect()
    await log.admin.create_topics([TopicSpec("t", 1), *TOPICS.all()])
    return log


async def write(log: MemoryLog, *records: Outgoing) -> None:
    writer = await log.writer()
    await asyncio.gather(*map(writer.send, records))
    await writer.close()


async def offsets(log: MemoryLog, **where: int) -> list[int]:
    return [record.offset async for record in scan(log, AT, **where)]


async def test_a_scan_reads_to_the_end_of_when_it_began(log: MemoryLog) -> None:
    await write(log, *(Outgoing("t", b"v") for _ in range(3)))
    found = []
    async for record in scan(log, AT):
        found.append(record.offset)
        await write(log, Outgoing("t", b"later"))
    assert found == [0, 1, 2]


async def test_a_scan_begins_at_a_time_or_an_offset(log: MemoryLog) -> None:
    await write(log, *(Outgoing("t", b"v", timestamp=ms) for ms in (100, 200, 300)))
    assert await offsets(log, since_ms=150) == [1, 2]
    assert await offsets(log, since_ms=301) == []
    assert await offsets(log, start=2) == [2]
    assert await offsets(log, start=3) == []


async def test_a_start_that_is_not_in_the_log_is_an_error(log: MemoryLog) -> None:
    await write(log, *(Outgoing("t", b"v") for _ in range(3)))
    with pytest.raises(OffsetGone, match="no offset 4: it holds 0–3"):
        await offsets(log, start=4)
    log.cluster.trim(AT, 2)
    with pytest.raises(OffsetGone, match="no offset 1: it holds 2–3"):
        await offsets(log, start=1)
    assert await offsets(log) == [2]


async def test_a_scan_comes_through_compacted_holes(log: MemoryLog) -> None:
    keys = (b"a", b"b", b"a", b"c", b"c")
    await write(log, *(Outgoing("t", b"v", key) for key in keys))
    log.cluster.compact("t")
    assert await offsets(log) == [1, 2, 4]


async def test_a_scan_ends_at_its_budget(log: MemoryLog) -> None:
    await write(log, *(Outgoing("t", b"v") for _ in range(3)))
    log.cluster.set_available([AT], False)
    with pytest.raises(ScanBudget, match="read to 0 of 3"):
        async for _ in scan(log, AT, budget=0.05):
            pass


async def test_the_first_readable_result_is_the_result(log: MemoryLog) -> None:
    assert await find_result(log, TOPICS, ID, since_ms=0) is None
    results = [Result(id=ID, outcome="completed", output=7), Result(id=ID, outcome="failed")]
    values = [b"\xff", *map(encode, results)]
    other = Outgoing(TOPICS.results, encode(Result(id="x", outcome="failed")), b"x")
    await write(log, other, *(Outgoing(TOPICS.results, value, ID.encode()) for value in values))
    found = await find_result(log, TOPICS, ID, since_ms=0)
    assert found is not None
    assert (found[0].offset, found[1].outcome, found[1].output) == (2, "completed", 7)


async def test_the_ledger_is_folded_by_headers_alone(log: MemoryLog) -> None:
    assert await find_ledger(log, TOPICS, ID, since_ms=0) is None
    cancel = Cancel(request_id=ID, why="asked", by="edge-1", tenant="default", lane="gold")
    given_back = Released(request_id=ID, attempt=1, worker="w", epoch="e", why="full")
    lines = [
        ("lease/9", 1, b"of a version that nobody reads"),
        (tag_of(given_back), 1, encode(given_back)),
        (tag_of(cancel), None, encode(cancel)),
        ("lease/1", 3, b"void"),
    ]
    await write(
        log,
        *(
            Outgoing(TOPICS.ledger, value, ID.encode(), headers=headers_of(tag, attempt=attempt))
            for tag, attempt, value in lines
        ),
    )
    found = await find_ledger(log, TOPICS, ID, since_ms=0)
    assert found is not None
    fold, counted = found
    assert (fold.n, fold.released, fold.cancelled, fold.ended) == (1, True, True, False)
    assert {kind: record.offset for kind, record in counted.items()} == {
        "lease": 0,
        "released": 1,
        "cancel": 2,
    }
