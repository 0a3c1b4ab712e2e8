"""Produce, and the producer ids of idempotent producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline.embedded.batch import Header, check
from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.partition import Appended, Partition
from pipeline.embedded.protocol import Answer
from pipeline.embedded.store import Transaction

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


async def init_producer_id(broker: Broker, request: Any, call: Call) -> Answer:
    """A producer id for an idempotent producer. There are no transactions here."""
    if request.transactional_id is not None:
        # clients retry "coordinator not available" for ever; this they report
        return {"error_code": Code.transactional_id_authorization_failed, "producer_epoch": -1}
    try:
        return {"producer_id": await broker.new_producer_id(), "producer_epoch": 0}
    except StorageError:
        return {"error_code": Code.kafka_storage_error, "producer_epoch": -1}
