"""A disk that is really full: writes are refused whole, reads go on, and room is all it takes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as Code

from tests.pipeline.brokers import EmbeddedBroker
from tests.pipeline.embedded import kill
from tests.pipeline.embedded.scene import create, produce
from tests.pipeline.embedded.test_start import refused
from tests.pipeline.embedded.wire import Wire, batch

LARGE = 100_000  # bytes of a record
SMALL = (4_000, 16)
RECORDS = 150  # of each size; of large ones that is more than 8 MiB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = mount("-t", "tmpfs", "-o", "size=8m", "headrace-test", str(place))
    if done.returncode:
        pytest.skip(f"this user may not mount a file system: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(directory)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


async def fill(wire: Wire, topic: str, *sizes: int) -> tuple[list[bytes], set[Code]]:
    """(the values that were acknowledged, the error codes of the others)."""
    acked: list[bytes] = []
    codes: set[Code] = set()
    for size in (size for size in (LARGE, *sizes) for _ in range(RECORDS)):
        value = os.urandom(size)
        answer = await produce(wire, topic, batch((None, value)))
        part = answer.responses[0].partition_responses[0]
        if part.error_code == 0:
            assert part.base_offset == len(acked)
            acked.append(value)
        else:
            codes.add(part.error_code)
    return acked, codes


async def other_writes(wire: Wire) -> list[Code]:
    """What is answered to everything else that needs room."""
    second = timedelta(seconds=1)
    producer = await wire.call(
        "init_producer_id", 1, transactional_id=None, transaction_timeout=second
    )
    topic = {"name": "late", "num_partitions": 1, "replication_factor": 1, "assignments": ()}
    topics = await wire.call(
        "create_topics", 4, topics=[{**topic, "configs": ()}], timeout=second, validate_only=False
    )
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4000}
    commit = await wire.call(
        "offset_commit",
        2,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time=second,
        topics=[{"name": "full", "partitions": [part]}],
    )
    return [
        producer.error_code,
        topics.topics[0].error_code,
        commit.topics[0].partitions[0].error_code,
    ]


async def values(wire: Wire, topic: str) -> list[bytes]:
    return [record.value for record in (await kill.read(wire, topic, 0)).values()]


async def test_writes_are_refused_whole_and_go_on_when_there_is_room(disk: Path) -> None:
    with running(disk / "log") as broker:
        async with await Wire.connect(broker.bootstrap) as wire:
            await create(wire, "full")
            acked, codes = await fill(wire, "full", *SMALL)  # until nothing fits
            assert codes == {Code.kafka_storage_error}
            assert await values(wire, "full") == acked
            assert await other_writes(wire) == [
                Code.kafka_storage_error,  # a new producer
                Code.kafka_storage_error,  # a new topic
                Code.not_coordinator,  # a commit; clients repeat it
            ]
            assert mount("-o", "remount,size=64m", str(disk)).returncode == 0
            await create(wire, "more")
            more, codes = await fill(wire, "more")
            assert not codes
            assert await values(wire, "more") == more
            assert await values(wire, "full") == acked


async def test_a_broker_killed_on_a_full_disk_has_everything_once_there_is_room(disk: Path) -> None:
    with running(disk / "log") as broker:
        async with await Wire.connect(broker.bootstrap) as wire:
            await create(wire, "full")
            acked, _ = await fill(wire, "full", *SMALL)
        broker.kill()
        assert mount("-o", "remount,size=64m", str(disk)).returncode == 0
        broker.start()
        async with await Wire.connect(broker.bootstrap) as wire:
            assert await values(wire, "full") == acked


def test_a_broker_does_not_start_on_a_full_disk_and_says_so(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "other").open("wb", buffering=0) as other:
        while other.write(bytes(1 << 16)):
            pass
    assert "free some space" in refused(disk / "log")
