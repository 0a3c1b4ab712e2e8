"""Fetch: a long poll on any number of partitions."""

from __future__ import annotations

import asyncio
from typing import Any

from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.partition import Partition
from pipeline.embedded.protocol import Answer, milliseconds

_MOST = 4 << 20  # bytes in one answer: a reader that never reads costs this much
_LONG = 0.1  # s: a wait that is shorter ends exactly when it is over


async def fetch(broker: Broker, request: Any, call: Call) -> Answer:
    """Read; waits until `min_bytes` are there or `max_wait` is over."""
    if getattr(request, "session_id", 0) != 0:
        return {"error_code": Code.fetch_session_id_not_found, "responses": ()}
    loop = asyncio.get_running_loop()
    deadline = _deadline(loop.time(), milliseconds(request.max_wait) / 1000)
    answers, size, failed = _read_all(broker, request)
    if size >= request.min_bytes or failed:
        return {"responses": answers}
    partitions = [
        broker.catalog.partition(topic.topic, part.partition)
        for topic in request.topics
        for part in topic.partitions
    ]
    appended = asyncio.Event()
    for partition in partitions:
        partition.waiting.add(appended)
    try:
        while size < request.min_bytes and not failed and deadline > loop.time():
            timer = loop.call_at(deadline, appended.set)
            await appended.wait()
            timer.cancel()
            appended.clear()
            answers, size, failed = _read_all(broker, request)
    finally:
        for partition in partitions:
            partition.waiting.discard(appended)
    return {"responses": answers}


def _deadline(now: float, wait: float) -> float:
    """When a wait of that many seconds ends: a long one up to a quarter early, at a round time.

    So idle clients fall into step, and one wake-up answers many.
    """
    end = now + wait
    return end - end % (wait / 4) if wait >= _LONG else end


def _read_all(broker: Broker, request: Any) -> tuple[list[Answer], int, bool]:
    """(answers by topic, bytes of records in them, whether a partition failed)."""
    room, size, failed = min(request.max_bytes, _MOST), 0, False
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            try:
                partition = broker.catalog.partition(topic.topic, part.partition)
                records = _read(broker, partition, part, room - size, first=size == 0)
                size += len(records)
                parts.append(
                    {
                        "partition_index": part.partition,
                        "high_watermark": partition.end,
                        "last_stable_offset": partition.end,
                        "log_start_offset": partition.start,
                        "aborted_transactions": None,
                        "records": records,
                    }
                )
            except Refused as refused:
                failed = True
                unknown = refused.code is Code.unknown_topic_or_partition
                parts.append(
                    {
                        "partition_index": part.partition,
                        "error_code": refused.code,
                        "high_watermark": -1,
                        "aborted_transactions": () if unknown else None,
                        "records": b"",
                    }
                )
        topics.append({"topic": topic.topic, "partitions": parts})
    return topics, size, failed


def _read(broker: Broker, partition: Partition, part: Any, room: int, *, first: bool) -> bytes:
    partition.check_leader_epoch(getattr(part, "current_leader_epoch", -1))
    partition.check_offset(part.fetch_offset)
    if part.fetch_offset == partition.end or (room <= 0 and not first):
        return b""
    most = min(part.partition_max_bytes, room)
    records = partition.read(broker.store.db, part.fetch_offset, most)
    # only the first batch of an answer may be larger than the limits, or a reader would be stuck
    return records if first or len(records) <= most else b""
