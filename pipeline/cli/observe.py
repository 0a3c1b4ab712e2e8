"""`topics` and `tail`: what lies in the log, and what comes."""

import base64
import json
from typing import Any

import msgspec

from pipeline.lag import lag
from pipeline.log import Log, Record, TopicPartition
from pipeline.topics import LANES, Topics
from schemas.codec import Unreadable, looks_json
from schemas.tokens import decode_event

from .connect import with_log
from .say import error


def topics(*, as_json: bool) -> int:
    async def work(log: Log, names: Topics) -> int:
        rows = await topic_rows(log, names)
        if as_json:
            print(json.dumps(rows))
            return 0
        print(f"{'topic':<24}{'partitions':>10}{'records':>12}{'lag':>10}")
        for row in rows:
            behind = "" if row["lag"] is None else row["lag"]
            print(f"{row['topic']:<24}{row['partitions']:>10}{row['records']:>12}{behind:>10}")
        return 0

    return with_log(work)


async def topic_rows(log: Log, names: Topics) -> list[dict[str, Any]]:
    """Name, partitions, records and the lag of whoever reads the topic as a group."""
    rows: list[dict[str, Any]] = []
    for name, spec in sorted((await log.admin.describe_topics()).items()):
        if not name.startswith(f"{names.prefix}."):
            continue
        at = [TopicPartition(name, partition) for partition in range(spec.partitions)]
        ends = await log.admin.end_offsets(at)
        starts = await log.admin.start_offsets(at)
        group = _group_of(name, names)
        behind = sum((await lag(log.admin, group, at)).values()) if group else None
        rows.append(
            {
                "topic": name,
                "partitions": spec.partitions,
                "records": sum(ends[tp] - starts[tp] for tp in at),
                "lag": behind,
            }
        )
    return rows


def _group_of(name: str, names: Topics) -> str | None:
    if name == names.requests:
        return names.group("ingress")
    if name == names.ledger:
        return names.group("delivery")
    if name in {names.ready(lane) for lane in LANES}:
        return names.group("orchestration.ready")
    return None


def tail(topic: str, start: str, count: int | None, *, as_json: bool) -> int:
    if start not in ("start", "end") and not start.isdigit():
        return error(f"--from is start, end or an offset, not {start!r}", 2)

    async def work(log: Log, names: Topics) -> int:
        known = await log.admin.describe_topics()
        name = topic if topic in known else f"{names.prefix}.{topic}"
        if name not in known:
            listed = ", ".join(sorted(n for n in known if n.startswith(names.prefix)))
            return error(f"there is no topic {topic!r}: choose one of {listed}")
        where: int | str = int(start) if start.isdigit() else start
        at = {TopicPartition(name, p): where for p in range(known[name].partitions)}
        reader = await log.reader(at, name="tail")
        shown = 0
        while count is None or shown < count:
            for record in await reader.poll(timeout=5.0):
                print(json.dumps(as_dict(record)) if as_json else as_line(record), flush=True)
                shown += 1
                if count is not None and shown >= count:
                    break
        return 0

    return with_log(work)


def readable(value: bytes | None) -> Any:
    """A record's value as plain data: JSON, MessagePack, or its bytes in base64."""
    if value is None:
        return None
    try:
        if value[:1] == b"[" or value[:1] in tuple(bytes([b]) for b in range(0x90, 0xA0)):
            return msgspec.to_builtins(decode_event(value))
        return msgspec.json.decode(value) if looks_json(value) else msgspec.msgpack.decode(value)
    except (msgspec.MsgspecError, Unreadable, UnicodeDecodeError, RecursionError):
        return {"base64": base64.b64encode(value).decode()}


def as_dict(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.decode("utf-8", "replace"),
        "headers": {name: value.decode("utf-8", "replace") for name, value in record.headers},
        "value": readable(record.value),
    }


def as_line(record: Record) -> str:
    fields = as_dict(record)
    value = json.dumps(fields["value"], ensure_ascii=False)
    kind = fields["headers"].get("type", "")
    return f"{record.partition}/{record.offset} {fields['key'] or '-'} {kind} {value}"
