"""`replay record|play|stage`: ranges of topics into a file, and from it to where they are wanted."""

import asyncio
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import msgspec

from pipeline.clock import WallClock
from pipeline.log import Log, Outgoing, Record
from pipeline.replay import from_line, into_stage, into_topic, read, replay, to_line
from pipeline.stage import DeadLetter, Emit, Hold, Retry
from pipeline.topics import Topics
from schemas.codec import Unreadable, looks_json

from .connect import with_log
from .observe import readable
from .ranges import Usage, Wanted, moment, ranges_of
from .say import error
from .stage_of import NoStage, stage_of

BUDGET = 86_400.0  # s a recording may take: it is as long as its topics
FLUSH = 60.0  # s for the last acks
VERDICTS = {DeadLetter: "dead_letter", Retry: "retry", Hold: "hold"}
# what made a request that one request: its id, its time, its trace
ITS_OWN = ("request-id", "deadline", "traceparent", "tracestate")


def record(
    places: list[str],
    out: str,
    since: str | None,
    until: str | None,
    wanted: Wanted,
    kafka: str | None,
) -> int:
    async def work(file: TextIO, log: Log, names: Topics) -> int:
        now = log.clock.ms()
        begin, end = (None if text is None else moment(text, now) for text in (since, until))
        count = 0
        ranges = await ranges_of(log, names, places, begin, end)
        async with aclosing(read(log, ranges, budget=BUDGET)) as records:
            async for each in records:
                if wanted(each):
                    file.write(to_line(each) + "\n")
                    count += 1
        print(f"recorded {count} records", file=sys.stderr)
        return 0

    def run() -> int:
        if out == "-":
            return with_log(partial(work, sys.stdout), kafka)
        with Path(out).open("w", encoding="utf-8") as file:
            return with_log(partial(work, file), kafka)

    return _guarded(run)


def play(
    file: str,
    into: str | None,
    wanted: Wanted,
    kafka: str | None,
    *,
    as_new: bool,
    by_key: bool,
    pace: float,
) -> int:
    async def work(log: Log, names: Topics) -> int:
        known = await log.admin.describe_topics()
        topic = into if into is None or into in known else f"{names.prefix}.{into}"
        if topic is not None and topic not in known:
            raise Usage(f"there is no topic {into!r}: make it first, or name another with --into")
        faults: list[BaseException] = []
        writer = await log.writer("replay", max_request_size=2_200_000)  # dead letters too
        try:
            player = into_topic(
                writer,
                topic,
                keep_partition=not (by_key or as_new),
                change=renewed if as_new else None,
                sent=lambda done: faults.extend(filter(None, [done.exception()])),
            )
            count = await replay((each for each in _lines(file) if wanted(each)), player, pace=pace)
            await writer.flush(FLUSH)
        finally:
            await writer.close()
        print(f"played {count - len(faults)} records", file=sys.stderr)
        return error(f"{len(faults)} were not taken; the first: {faults[0]}") if faults else 0

    return _guarded(lambda: with_log(work, kafka))


def renewed(outgoing: Outgoing) -> Outgoing:
    """The same question, asked anew: whatever made it that one request is gone. Its correlation id stays."""
    headers = tuple(pair for pair in outgoing.headers if pair[0] not in ITS_OWN)
    return outgoing._replace(value=_without_id(outgoing.value), key=None, headers=headers)


def _without_id(value: bytes | None) -> bytes | None:
    """What cannot be read goes as it is, and is refused as it was."""
    if value is None:
        return None
    form: Any = msgspec.json if looks_json(value) else msgspec.msgpack
    try:
        body = form.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return value
    if not isinstance(body, dict) or body.pop("id", None) is None:
        return value
    return bytes(form.encode(body))


def through_stage(file: str, name: str, wanted: Wanted) -> int:
    async def run() -> int:
        stage, kind = stage_of(name)
        chance = random.Random(0)  # the same recording says the same
        player = into_stage(stage, kind, _print, clock=WallClock(), chance=chance)

        async def tolerant(each: Record) -> None:
            try:
                await player(each)
            except Unreadable as fault:
                _print(each, [DeadLetter("unreadable", str(fault))])

        count = await replay((each for each in _lines(file) if wanted(each)), tolerant)
        print(f"played {count} records", file=sys.stderr)
        return 0

    return _guarded(lambda: asyncio.run(run()))


def _lines(file: str) -> Iterator[Record]:
    """Raises Usage naming the line."""
    with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield from_line(line)
            except ValueError as fault:
                raise Usage(f"{file}, line {number}: {fault}") from fault


def _print(source: Record, emitted: list[Emit]) -> None:
    for each in emitted:
        if isinstance(each, Outgoing):
            fields = each._asdict() | {
                "key": None if each.key is None else each.key.decode("utf-8", "replace"),
                "headers": {name: raw.decode("utf-8", "replace") for name, raw in each.headers},
                "value": readable(each.value),
            }
            _say(source, {"send": fields})
        else:
            fields = {name: getattr(each, name) for name in each.__dataclass_fields__}
            _say(source, {VERDICTS[type(each)]: fields or True})
    if not emitted:
        _say(source, {"done": True})


def _say(source: Record, what: dict[str, Any]) -> None:
    place = f"{source.topic}/{source.partition}/{source.offset}"
    print(json.dumps({"from": place, **what}, ensure_ascii=False), flush=True)


def _guarded(work: Callable[[], int]) -> int:
    try:
        return work()
    except (Usage, NoStage) as fault:
        return error(str(fault), 2)
    except BrokenPipeError:  # `replay record … | head`
        raise
    except OSError as fault:
        return error(str(fault))
