"""Records that nobody can read, of every kind, for each topic that carries an obligation."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from schemas.ids import mint, partition_of

Pairs = list[tuple[str, bytes | None]]

HUGE = 200_000  # bytes of a header
LARGE = 300_000  # bytes: above what a request may have
DEEP = 100_000  # levels
FAR_ID = "req_01870000-0000-7000-8000-000000000001"  # born in March 2023
TOPICS = ("requests", "ready.gold", "work", "ledger")


@dataclass
class Bad:
    """One record, and what must become of it."""

    value: bytes | None
    key: bytes | None = None
    headers: Pairs = field(default_factory=list)
    partition: int | None = None
    letter: str = ""  # the stage on whose dead letters it must be
    ends: str = ""  # the request that it must end as `failed`


def values(chance: random.Random) -> list[bytes | None]:
    """What is no record of ours, in any of our encodings."""
    size = chance.randrange(1, 400)
    packed = msgspec.msgpack.encode({"type": "ready/1", "request_id": "x" * 40, "n": 1})
    return [
        None,
        b"",
        b"\xff" + chance.randbytes(size),
        b"{" + chance.randbytes(size),
        packed[: chance.randrange(1, len(packed))],
        b'{"type":"request/1","model":"null","prompt":"cut o',
        b'{"type":"request/9","model":"null","prompt":"x"}',
        b'{"type":"nothing/1"}',
        msgspec.msgpack.encode({"type": "odd/1", "attempt": 2**64 - 1}),
        msgspec.msgpack.encode([1, 2, -(2**63)]),
        b'{"type":"lease/1","attempt":' + b"9" * 400 + b"}",
        b'{"a":' * DEEP,
        b"\x91" * DEEP,
        b"\xdd\xff\xff\xff\xff",  # an array of 2³² items
        b"\xc6\xff\xff\xff\xff" + chance.randbytes(size),  # 4 GiB of bytes
        b"[" * DEEP,
        chance.randbytes(LARGE),
    ]


def odd_headers(chance: random.Random) -> Pairs:
    """Headers of which none helps: too large, twice, with an empty value, of no meaning."""
    return chance.choice(
        [
            [],
            [("x", b"y" * HUGE)],
            [("x", b"1"), ("x", b"2"), ("x", b"1")],
            [("content-type", b"application/json")],
            [("tenant", b"\xff\xfe"), ("lane", b"platinum")],
            [("deadline", b"9" * 400), ("traceparent", b"00-0-0-00")],
        ]
    )


def of_requests(chance: random.Random, used: str) -> Iterator[Bad]:
    """`used`: an id that another tenant has used."""
    bodies: list[bytes | None] = [
        *values(chance),
        json.dumps({"model": "null", "prompt": "x", "id": "mine"}).encode(),
        json.dumps({"model": "null", "prompt": "x", "id": FAR_ID}).encode(),
        json.dumps({"model": "null", "prompt": "x", "id": used}).encode(),
        b'{"model":"null","prompt":"x","id":1' + b"0" * 400 + b"}",
    ]
    for value in bodies:
        key = chance.choice([None, b"", chance.randbytes(20), b"k" * 1000])
        yield Bad(value, key, odd_headers(chance), letter="ingress")


def of_ready(chance: random.Random, used: str, partitions: int) -> Iterator[Bad]:
    """With the id of nobody, of a request of its own, of one that lies in another partition, and of
    another tenant's that has ended."""
    for value in values(chance):
        own = mint(now(), chance)
        yield Bad(value, None, odd_headers(chance), 0, "orchestration")
        told: Pairs = [("request-id", own.encode())]
        yield Bad(value, None, told, partition_of(own, partitions), "orchestration", own)
        own = mint(now(), chance)
        told = [("request-id", own.encode())]
        astray = (partition_of(own, partitions) + 1) % partitions
        yield Bad(value, None, told, astray, "orchestration")
        own = mint(now(), chance)
        place = partition_of(own, partitions)
        yield Bad(value, own.encode(), odd_headers(chance), place, "orchestration", own)
        theirs: Pairs = [("request-id", used.encode()), ("tenant", b"mallory")]
        yield Bad(value, used.encode(), theirs, partition_of(used, partitions), "orchestration")


def of_work(chance: random.Random, used: str, inboxes: list[int]) -> Iterator[Bad]:
    for value in values(chance):
        mine = chance.choice(inboxes)
        yield Bad(value, None, odd_headers(chance), mine, "worker")
        told: Pairs = [("request-id", used.encode()), ("attempt", b"1"), ("tenant", b"mallory")]
        yield Bad(value, chance.randbytes(8), told, mine, "worker")


def of_ledger(chance: random.Random, used: str, partitions: int) -> Iterator[Bad]:
    """Unreadable ones count by their headers; what does not count is kept all the same."""
    for value in values(chance):
        yield Bad(value, None, odd_headers(chance), 0, "orchestration")
        own = mint(now(), chance)
        astray = (partition_of(own, partitions) + 1) % partitions
        told: Pairs = [("type", b"lease/1"), ("request-id", own.encode()), ("attempt", b"1")]
        yield Bad(value, own.encode(), told, astray, letter="orchestration")
        for kind, attempt, letter in (
            (b"lease/1", b"1", "orchestration"),
            (b"lease/9", b"1", "orchestration"),
            (b"output/1", b"0", "delivery"),
        ):
            own = mint(now(), chance)
            told = [("type", kind), ("request-id", own.encode()), ("attempt", attempt)]
            yield Bad(value, own.encode(), told, partition_of(own, partitions), letter, own)
        for kind, attempt in (
            (b"released/1", b"3"),
            (b"lease/1", b"9" * 19),
            (b"lease/1", b"9" * 400),
            (b"nothing/1", b"1"),
        ):
            own = mint(now(), chance)
            told = [("type", kind), ("request-id", own.encode()), ("attempt", attempt)]
            yield Bad(value, own.encode(), told, partition_of(own, partitions), "orchestration")
        theirs: Pairs = [("request-id", used.encode()), ("tenant", b"mallory")]
        theirs += [("type", b"output/1"), ("attempt", b"0")]
        yield Bad(value, used.encode(), theirs, partition_of(used, partitions), "delivery")


def malformed(
    topic: str, seed: int, count: int, *, used: str, inboxes: list[int], partitions: int
) -> list[Bad]:
    """`count` records for a topic, every kind in turn; the same for the same seed, but for the ids.
    `partitions`: of the ledger and of a lane."""
    chance = random.Random(f"{topic} {seed}")
    found: list[Bad] = []
    while len(found) < count:
        if topic == "requests":
            more = list(of_requests(chance, used))
        elif topic == "work":
            more = list(of_work(chance, used, inboxes))
        elif topic == "ledger":
            more = list(of_ledger(chance, used, partitions))
        else:
            more = list(of_ready(chance, used, partitions))
        chance.shuffle(more)
        found += more
    return found[:count]


def now() -> int:
    return time.time_ns() // 1_000_000
