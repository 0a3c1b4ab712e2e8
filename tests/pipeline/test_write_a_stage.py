"""The page docs/write-a-stage.md is true: its stage runs as shown, on the memory log and on a broker."""

import asyncio
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pipeline.clock import WallClock
from pipeline.kafka import connect
from pipeline.log import Log, Outgoing, TopicPartition, TopicSpec
from pipeline.memory import MemoryCluster
from pipeline.settings import KafkaSettings, Settings, TopicSettings
from pipeline.standalone import run_stage
from pipeline.topics import Topics
from schemas.codec import encode
from schemas.ledger import Usage
from schemas.result import Result

from .brokers import EmbeddedBroker

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-stage.md").read_text()
LIMIT = 60.0  # s that any wait may take on a busy machine


def page_code(number: int, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the page's n-th block of Python defines."""
    names = {"__name__": "page", **(known or {})}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.S)[number], names)
    return names


def test_the_stage_is_twenty_lines() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 22


def test_the_pages_own_test_passes() -> None:
    page_code(1, {"bill": page_code(0)["bill"]})["test_a_completed_answer_is_billed_once"]()


async def bills_of(observer: Log, results: Iterable[bytes], **options: Any) -> tuple[Any, Any]:
    """Publish results, run the page's stage over them and give (bills, dead letters)."""
    bill = page_code(0)["bill"]
    specs = [TopicSpec("page.results", 2), TopicSpec("bills", 1)]
    await observer.admin.create_topics([*specs, Topics(prefix="page").dead_spec("bill")])
    writer = await observer.writer()
    for number, value in enumerate(results):
        await asyncio.wait_for(
            writer.send(Outgoing("page.results", value, partition=number % 2)), LIMIT
        )
    draining = asyncio.Event()
    task = asyncio.create_task(
        run_stage(
            bill,
            topics=["page.results"],
            kind=Result,
            declare=specs,
            draining=draining,
            settings=Settings(
                topics=TopicSettings(prefix="page")
            ),  # brokers are shared by many tests
            **options,
        )
    )
    reader = await observer.reader({TopicPartition("bills", 0): "start"})
    bills = await some(reader, 2)
    dead = await some(await observer.reader({TopicPartition("page.dlq.bill", 0): "start"}), 2)
    draining.set()
    await asyncio.wait_for(task, LIMIT)
    return bills, dead


async def some(reader: Any, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < count:
            found += await reader.poll()
    return found


RESULTS = [
    encode(Result(id="req_1", outcome="completed", tenant="a", usage=Usage(total_tokens=7))),
    b"garbage",
    encode(Result(id="req_2", outcome="cancelled", tenant="a")),
    encode(Result(id="req_3", outcome="completed", tenant="a")),
    encode(
        Result(id="req_4", outcome="completed", tenant="b", usage=Usage(total_tokens=9)), "json"
    ),
]


def check(bills: Any, dead: Any) -> None:
    assert sorted(each.value for each in bills) == [
        b'{"tenant":"a","tokens":7}',
        b'{"tenant":"b","tokens":9}',
    ]
    reasons = {dict(each.headers)["__dlq.errors.message"].split(b":")[0] for each in dead}
    assert reasons == {b"unreadable", b"no_usage"}
    assert b"garbage" in {each.value for each in dead}


async def test_it_runs_on_the_memory_log() -> None:
    cluster = MemoryCluster(WallClock())
    log = cluster.connect()
    stage_log: Any = cluster.connect("bill")
    check(*await bills_of(log, RESULTS, log=stage_log))


async def test_its_dead_letters_are_kept_as_the_settings_say() -> None:
    cluster = MemoryCluster(WallClock())
    cluster.create(TopicSpec("page.results", 1))
    draining = asyncio.Event()
    draining.set()
    stage_log: Any = cluster.connect("bill")
    stage = run_stage(
        page_code(0)["bill"],
        topics=["page.results"],
        kind=Result,
        draining=draining,
        settings=Settings(topics=TopicSettings(prefix="page", replication=3)),
        log=stage_log,
    )
    await asyncio.wait_for(stage, LIMIT)
    assert cluster.topics["page.dlq.bill"].replication == 3


async def test_it_runs_on_the_embedded_broker(embedded_broker: EmbeddedBroker) -> None:
    pytest.importorskip("kio", reason="the embedded broker needs headrace[embedded]")
    settings = KafkaSettings(bootstrap=embedded_broker.bootstrap)
    log = await connect(settings, WallClock(), client_id="test")
    check(*await bills_of(log, RESULTS, bootstrap=embedded_broker.bootstrap))
    await log.close()


async def test_a_kill_loses_nothing_and_the_next_life_goes_on_at_once(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    count = 300
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
    where = f'bootstrap="{embedded_broker.bootstrap}", id="bill-1", name="killed"'
    code = code.replace('topics=["hr.results"]', f'topics=["killed.results"], {where}')
    code = code.replace('"bills"', '"killed.bills"')
    file = tmp_path / "bill.py"
    file.write_text(code)
    settings = KafkaSettings(bootstrap=embedded_broker.bootstrap)
    log = await connect(settings, WallClock(), client_id="test")
    await log.admin.create_topics([TopicSpec("killed.results", 4)])
    bills = [TopicPartition("killed.bills", number) for number in range(4)]
    await log.admin.create_topics([TopicSpec("killed.bills", 4)])
    reader = await log.reader(dict.fromkeys(bills, "start"))
    writer = await log.writer()
    ids: set[bytes] = set()

    async def life() -> asyncio.subprocess.Process:
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "PYTHONPATH": root}
        return await asyncio.create_subprocess_exec(sys.executable, str(file), env=env)

    async def billed(enough: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(ids) < enough:
                ids.update(record.key or b"" for record in await reader.poll())

    def publish(first: int, last: int) -> None:
        for number in range(first, last):
            usage = Usage(total_tokens=number + 1)
            result = Result(id=f"req_{number}", outcome="completed", tenant="a", usage=usage)
            writer.send(Outgoing("killed.results", encode(result), key=b"%d" % number))

    publish(0, count // 2)
    first = await life()
    await billed(10)
    publish(count // 2, count)
    first.kill()
    await first.wait()
    second = await life()
    await billed(count)
    second.terminate()
    assert await asyncio.wait_for(second.wait(), LIMIT) == 0
    assert ids == {b"req_%d" % number for number in range(count)}
    await log.close()
