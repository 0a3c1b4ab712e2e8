"""Request ids: `req_` + a UUIDv7, which says when a request was born and where its records are.

The partition of a request in every topic keyed by its id is Kafka's murmur2, as the Java client and
aiokafka compute it (`org.apache.kafka.common.utils.Utils.murmur2`); librdkafka's default differs.
"""

import hashlib
import random
import re
import struct
from collections.abc import Container
from functools import lru_cache

PREFIX = "req_"
# version 7, the variant of RFC 9562, lower case: one spelling of every id
_SHAPE = re.compile("req_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


class InvalidId(ValueError):
    """Not one of our ids."""


@lru_cache(maxsize=4096)  # a request's id is hashed at every write of it, within a moment
def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, unsigned."""
    length = len(data)
    whole = length & ~3
    h = _mix(0x9747B28C ^ length, data[:whole])
    tail = data[whole:]
    if tail:
        h ^= int.from_bytes(tail, "little")
        h = (h * _M) & _MASK
    return _finish(h)


def _mix(h: int, words: bytes) -> int:
    """Take whole 4-byte words into the state."""
    for k in struct.unpack(f"<{len(words) >> 2}I", words):
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    return h


def _finish(h: int) -> int:
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes | str, partitions: int) -> int:
    """The partition that Kafka's default partitioner gives `key`."""
    raw = key.encode() if isinstance(key, str) else key
    return (murmur2(raw) & 0x7FFFFFFF) % partitions


def _uuid7(ms: int, entropy: int) -> str:
    rand_a = (entropy >> 62) & 0xFFF
    rand_b = entropy & ((1 << 62) - 1)
    value = ((ms & ((1 << 48) - 1)) << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b
    digits = f"{value:032x}"
    return f"{PREFIX}{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def mint(ms: int, chance: random.Random) -> str:
    """A new id born at `ms` (Unix epoch, milliseconds)."""
    return _uuid7(ms, chance.getrandbits(74))


def mint_into(ms: int, chance: random.Random, slots: Container[int], partitions: int) -> str:
    """A new id whose slot is one of `slots`, so that an edge reads only its own.

    The last four digits are moved on until it is: all before them is hashed once.
    Raises ValueError when none of 65,536 does, which only an empty `slots` explains.
    """
    minted = mint(ms, chance)
    head, tail = minted[:-4], int(minted[-4:], 16)  # 36 characters: whole words of the hash
    state = _mix(0x9747B28C ^ len(minted), head.encode())
    for i in range(1 << 16):
        digits = b"%04x" % ((tail + i) & 0xFFFF)
        if (_finish(_mix(state, digits)) & 0x7FFFFFFF) % partitions in slots:
            return head + digits.decode()
    raise ValueError(f"no id falls into the given slots of {partitions}")


def derive(ms: int, topic: str, partition: int, offset: int) -> str:
    """The id of a record that came without one: its append time and place, so redelivery keeps it."""
    digest = hashlib.sha256(f"{topic}/{partition}/{offset}".encode()).digest()
    return _uuid7(ms, int.from_bytes(digest[:10], "big") & ((1 << 74) - 1))


@lru_cache(maxsize=4096)  # every stage asks more than once, within a moment
def birth(request_id: str) -> int:
    """When the id was born, ms since the epoch. Raises InvalidId."""
    if _SHAPE.fullmatch(request_id) is None:
        raise InvalidId(f"{request_id[:64]!r} is not a request id (req_ and a UUIDv7)")
    return int(request_id[4:12] + request_id[13:17], 16)


def is_id(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None
