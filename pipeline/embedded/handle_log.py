"""Produce, Fetch, ListOffsets, DeleteRecords and InitProducerId."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline.embedded.batch import LEADER_EPOCH, Header, check
from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.partition import Appended, Partition
from pipeline.embedded.protocol import Answer, milliseconds
from pipeline.embedded.store import Transaction

_FETCH_MOST = 4 << 20  # bytes in one answer: a reader that never reads costs this much
_END, _START, _LATEST_RECORD = -1, -2, -3  # ListOffsets' special timestamps
_ACKS = (-1, 0, 1)
_ZSTD, _ZSTD_FROM = 4, 7  # the Produce version that may carry zstd


class _Append(NamedTuple):
    partition: Partition
    batch: bytes
    header: Header


async def produce(broker: Broker, request: Any, call: Call) -> Answer | None:
    """Append; answered when it is committed, or not at all with acks=0."""
    now = broker.now()
    places: list[tuple[str, int, _Append | Refused]] = []
    for topic in request.topic_data:
        for part in topic.partition_data:
            try:
                append: _Append | Refused = _checked(broker, request, topic.name, part, call, now)
            except Refused as refused:
                append = refused
            places.append((topic.name, part.index, append))
    outcomes = await _append_all(broker, [place[2] for place in places], now)
    if request.acks == 0:
        # Kafka's way to tell such a producer that something is wrong is to close the connection
        failed = next((each for each in outcomes if isinstance(each, Refused)), None)
        if failed is not None:
            raise failed
        return None
    topics: dict[str, list[Answer]] = {}
    for (name, index, append), outcome in zip(places, outcomes, strict=True):
        topics.setdefault(name, []).append(_produced(index, append, outcome))
    return {
        "responses": [
            {"name": name, "partition_responses": answers} for name, answers in topics.items()
        ]
    }


def _checked(broker: Broker, request: Any, topic: str, part: Any, call: Call, now: int) -> _Append:
    if request.acks not in _ACKS:
        raise Refused(Code.invalid_required_acks, f"acks={request.acks}")
    if request.transactional_id is not None:
        raise Refused(Code.transactional_id_authorization_failed, "transactions are not served")
    partition = broker.catalog.partition(topic, part.index)
    if request.acks == -1 and partition.config.min_insync_replicas > 1:
        raise Refused(Code.not_enough_replicas, "min.insync.replicas is more than one broker has")
    batch = part.records or b""
    header = check(batch, partition.config.limits, now)
    if header.attributes & 7 == _ZSTD and call.version < _ZSTD_FROM:
        raise Refused(Code.unsupported_compression_type, "zstd needs Produce version 7")
    return _Append(partition, batch, header)


async def _append_all(
    broker: Broker, appends: Sequence[_Append | Refused], now: int
) -> list[Appended | Refused]:
    """All of one request's appends in one transaction, one outcome for each."""

    def apply(transaction: Transaction) -> list[Appended | Refused]:
        outcomes: list[Appended | Refused] = []
        for append in appends:
            if isinstance(append, _Append):
                try:
                    outcomes.append(
                        append.partition.append(transaction, append.batch, append.header, now)
                    )
                except Refused as refused:
                    outcomes.append(refused)
            else:
                outcomes.append(append)
        return outcomes

    def publish(outcomes: list[Appended | Refused]) -> None:
        for append, outcome in zip(appends, outcomes, strict=True):
            if isinstance(append, _Append) and isinstance(outcome, Appended):
                append.partition.publish(outcome, append.header.producer_id)

    if all(isinstance(append, Refused) for append in appends):
        return [append for append in appends if isinstance(append, Refused)]
    try:
        return await broker.store.write(apply, publish)
    except StorageError as error:
        full = Refused(Code.kafka_storage_error, str(error))
        return [append if isinstance(append, Refused) else full for append in appends]


def _produced(index: int, append: _Append | Refused, outcome: Appended | Refused) -> Answer:
    if isinstance(outcome, Refused) or isinstance(append, Refused):
        refused = outcome if isinstance(outcome, Refused) else append
        assert isinstance(refused, Refused)
        return {
            "index": index,
            "error_code": refused.code,
            "error_message": refused.message,
            "base_offset": -1,
            "log_start_offset": -1 if isinstance(append, Refused) else append.partition.start,
            "record_errors": (),
        }
    return {
        "index": index,
        "base_offset": outcome.base_offset,
        "log_append_time": outcome.append_time,
        "log_start_offset": append.partition.start,
        "record_errors": (),
    }


async def fetch(broker: Broker, request: Any, call: Call) -> Answer:
    """Read; waits until `min_bytes` are there or `max_wait` is over."""
    if getattr(request, "session_id", 0) != 0:
        return {"error_code": Code.fetch_session_id_not_found, "responses": ()}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + milliseconds(request.max_wait) / 1000
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


def _read_all(broker: Broker, request: Any) -> tuple[list[Answer], int, bool]:
    """(answers by topic, bytes of records in them, whether a partition failed)."""
    room, size, failed = min(request.max_bytes, _FETCH_MOST), 0, False
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
    _check_leader_epoch(part)
    partition.check_offset(part.fetch_offset)
    if part.fetch_offset == partition.end or (room <= 0 and not first):
        return b""
    most = min(part.partition_max_bytes, room)
    records = partition.read(broker.store.db, part.fetch_offset, most)
    # only the first batch of an answer may be larger than the limits, or a reader would be stuck
    return records if first or len(records) <= most else b""


def _check_leader_epoch(part: Any) -> None:
    epoch = getattr(part, "current_leader_epoch", -1)
    if epoch > LEADER_EPOCH:
        raise Refused(Code.unknown_leader_epoch, f"leader epoch {epoch} is ahead of this broker's")


async def list_offsets(broker: Broker, request: Any, call: Call) -> Answer:
    """Offsets by time; the end, the start and the newest record by special times."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_listed(broker, topic.name, part) for part in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _listed(broker: Broker, topic: str, part: Any) -> Answer:
    answer: Answer = {"partition_index": part.partition_index, "leader_epoch": -1}
    try:
        partition = broker.catalog.partition(topic, part.partition_index)
        _check_leader_epoch(part)
    except Refused as refused:
        return answer | {"error_code": refused.code}
    found: tuple[int, int] | None
    if part.timestamp == _END:
        found = partition.end, -1
    elif part.timestamp == _START:
        found = partition.start, -1
    elif part.timestamp == _LATEST_RECORD:
        found = partition.latest_record(broker.store.db)
    else:
        found = partition.offset_at(broker.store.db, part.timestamp)
    if found is None:
        return answer
    return answer | {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}


async def delete_records(broker: Broker, request: Any, call: Call) -> Answer:
    """Move the start of partitions; -1 is their end."""
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            result: Answer = {"partition_index": part.partition_index, "low_watermark": -1}
            try:
                partition = broker.catalog.partition(topic.name, part.partition_index)
                result["low_watermark"] = await _delete_records(broker, partition, part.offset)
            except Refused as refused:
                result["error_code"] = refused.code
            except StorageError:
                result["error_code"] = Code.kafka_storage_error
            results.append(result)
        topics.append({"name": topic.name, "partitions": results})
    return {"topics": topics}


async def _delete_records(broker: Broker, partition: Partition, offset: int) -> int:
    if not partition.config.delete:
        raise Refused(Code.policy_violation, "the topic is compacted, not deleted")
    offset = partition.end if offset == -1 else offset
    if not 0 <= offset <= partition.end:
        raise Refused(Code.offset_out_of_range, f"the partition ends at {partition.end}")
    await partition.move_start(broker.store, offset)
    return partition.start


async def init_producer_id(broker: Broker, request: Any, call: Call) -> Answer:
    """A producer id for an idempotent producer. There are no transactions here."""
    if request.transactional_id is not None:
        # clients retry "coordinator not available" for ever; this they report
        return {"error_code": Code.transactional_id_authorization_failed, "producer_epoch": -1}
    return {"producer_id": await broker.new_producer_id(), "producer_epoch": 0}
