"""`dlq list|show|replay`: dead letters, why they died, and the way back."""

import base64
import json
from typing import Any

from pipeline.log import Log, Outgoing, Record, TopicPartition
from pipeline.lookup import scan
from pipeline.topics import Topics

from .connect import with_log
from .observe import readable
from .say import error

REASON = "__dlq.errors."


def why(record: Record) -> dict[str, str]:
    """The letter's own account: topic, partition, offset, message, exception class."""
    return {
        name.removeprefix(REASON): value.decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(REASON)
    }


def raw_dict(letter: Record) -> dict[str, Any]:
    """The letter as it came: a script wants its bytes, and every header, duplicates too."""
    return {
        "key": None if letter.key is None else base64.b64encode(letter.key).decode(),
        "headers": [
            [name, base64.b64encode(raw).decode()]
            for name, raw in letter.headers
            if not name.startswith(REASON)
        ],
        "value": None if letter.value is None else base64.b64encode(letter.value).decode(),
    }


async def _stages(log: Log, names: Topics) -> dict[str, int]:
    """Every stage with a dead-letter topic, also of other people's making, and its partitions."""
    first = names.dead("")
    return {
        name.removeprefix(first): spec.partitions
        for name, spec in sorted((await log.admin.describe_topics()).items())
        if name.startswith(first)
    }


async def _letters(log: Log, names: Topics, stage: str, partitions: int) -> list[Record]:
    found: list[Record] = []
    for partition in range(partitions):
        at = TopicPartition(names.dead(stage), partition)
        start = (await log.admin.start_offsets([at]))[at]
        found += [record async for record in scan(log, at, start=start, budget=60.0)]
    return found


def show_all(*, as_json: bool) -> int:
    async def work(log: Log, names: Topics) -> int:
        rows = [
            {"place": f"{stage}/{record.offset}", "timestamp": record.timestamp, **why(record)}
            for stage, partitions in (await _stages(log, names)).items()
            for record in await _letters(log, names, stage, partitions)
        ]
        if as_json:
            print(json.dumps(rows))
            return 0
        if not rows:
            print("no dead letters")
        for row in rows:
            came_from = f"{row.get('topic')}/{row.get('partition')}/{row.get('offset')}"
            print(f"{row['place']:<18} from {came_from:<24} {row.get('message', '')}")
        return 0

    return with_log(work)


def show_one(place: str, *, as_json: bool) -> int:
    async def look(log: Log, names: Topics, letter: Record) -> int:
        if as_json:
            print(json.dumps({"place": place, "why": why(letter), **raw_dict(letter)}))
            return 0
        for name, value in why(letter).items():
            print(f"{name + ':':<18}{value}")
        print(f"{'key:':<18}{letter.key!r}")
        for name, raw in letter.headers:
            if not name.startswith(REASON):
                print(f"{'header:':<18}{name} = {raw.decode('utf-8', 'replace')}")
        shown = readable(letter.value)
        print(f"{'value:':<18}{json.dumps(shown, ensure_ascii=False)}")
        if isinstance(shown, dict) and "base64" in shown and letter.value is not None:
            print(f"{'bytes:':<18}{letter.value[:256]!r}{' …' if len(letter.value) > 256 else ''}")
        return 0

    return _with_letter(place, look)


def send_back(place: str) -> int:
    async def send(log: Log, names: Topics, letter: Record) -> int:
        origin = why(letter).get("topic")
        if not origin:
            return error(f"{place} does not say which topic it came from")
        headers = tuple(pair for pair in letter.headers if not pair[0].startswith(REASON))
        writer = await log.writer("dlq-replay", max_request_size=2_200_000)
        placed = writer.send(Outgoing(origin, letter.value, key=letter.key, headers=headers))
        await writer.flush()
        where = await placed
        await writer.close()
        print(f"sent to {where.topic}/{where.partition}/{where.offset}")
        return 0

    return _with_letter(place, send)


def _with_letter(place: str, then: Any) -> int:
    stage, _, offset = place.partition("/")
    if not stage or not (offset.isascii() and offset.isdigit()):
        return error(
            f"{place!r} is no place: write STAGE/OFFSET, as `headrace dlq list` prints it", 2
        )

    async def work(log: Log, names: Topics) -> int:
        stages = await _stages(log, names)
        if stage not in stages:
            return error(f"there is no stage {stage!r}: choose one of {', '.join(stages)}", 2)
        for letter in await _letters(log, names, stage, stages[stage]):
            if letter.offset == int(offset):
                return int(await then(log, names, letter))
        return error(f"there is no dead letter {place}")

    return with_log(work)
