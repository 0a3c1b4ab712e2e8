"""Which records a command means: topics, partitions, offsets, times, keys, headers."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, Self

from pipeline.log import Log, Record, TopicPartition
from pipeline.replay import Range
from pipeline.topics import Topics

PLACE = re.compile(
    r"(?P<topic>[^/]+)(/(?P<partition>\d+)(/(?P<first>\d+)(?P<to>-(?P<last>\d*))?)?)?"
)
AGE = re.compile(r"(\d+)(s|m|h|d)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Usage(Exception):
    """A flag or an argument that cannot be; says what is allowed."""


class Wanted(NamedTuple):
    """Which records; None and () are all."""

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, key: str | None, headers: Iterable[str] | None) -> Self:
        pairs = (each.partition("=") for each in headers or ())
        wanted = tuple((name, value.encode() if equals else None) for name, equals, value in pairs)
        return cls(None if key is None else key.encode(), wanted)

    def __call__(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        return all(
            any(name == n and value in (None, v) for n, v in record.headers)
            for name, value in self.headers
        )


def moment(text: str, now: int) -> int:
    """ms epoch of `2026-11-30T18:00` (local time unless it says its zone) or of an age. Raises Usage."""
    if age := AGE.fullmatch(text):
        return now - int(age[1]) * SECONDS[age[2]] * 1000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as fault:
        raise Usage(
            f"{text!r} is no time: write 2026-11-30T18:00, or an age such as 10m"
        ) from fault


async def ranges_of(
    log: Log, names: Topics, places: Iterable[str], since: int | None, until: int | None
) -> dict[TopicPartition, Range]:
    """Raises Usage."""
    known = await log.admin.describe_topics()
    ranges: dict[TopicPartition, Range] = {}
    for place in places:
        asked = PLACE.fullmatch(place)
        if asked is None:
            raise Usage(f"{place!r}: write TOPIC, TOPIC/PARTITION or TOPIC/PARTITION/FIRST-LAST")
        topic = asked["topic"] if asked["topic"] in known else f"{names.prefix}.{asked['topic']}"
        if topic not in known:
            listed = ", ".join(sorted(n for n in known if n.startswith(names.prefix)))
            raise Usage(f"there is no topic {asked['topic']!r}: choose one of {listed}")
        count = known[topic].partitions
        if asked["partition"] is not None and int(asked["partition"]) >= count:
            raise Usage(f"{topic} has the partitions 0 to {count - 1}, no {asked['partition']}")
        chosen = range(count) if asked["partition"] is None else [int(asked["partition"])]
        for partition in chosen:
            ranges[TopicPartition(topic, partition)] = _range_of(asked, since)
    return ranges if until is None else await _cut(log, ranges, until)


def _range_of(asked: "re.Match[str]", since: int | None) -> Range:
    if asked["first"] is None:
        return Range(since_ms=since)
    last = asked["last"] if asked["to"] else asked["first"]
    return Range(int(asked["first"]), int(last) + 1 if last else None)


async def _cut(
    log: Log, ranges: dict[TopicPartition, Range], until: int
) -> dict[TopicPartition, Range]:
    ends = await log.admin.offsets_for_time(dict.fromkeys(ranges, until))
    return {
        at: chosen
        if (end := ends[at]) is None
        else chosen._replace(end=min(chosen.end or end, end))
        for at, chosen in ranges.items()
    }
