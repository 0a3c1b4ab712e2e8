"""Idempotency keys: one key of a tenant names one request for 24 hours.

What is promised is what the store promises: one node with its append-only file outlives the death of its
process, not a failover.
"""

import hashlib
from typing import NamedTuple

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.errors import Refusal

KEY_LIMIT = 255  # bytes
LIFE = 86_400  # s, as long as the longest deadline
STORE_TIMEOUT = 1.0  # s


class Claim(NamedTuple):
    """What a key names."""

    id: str
    hash: str  # of route and body
    deadline: int  # ms epoch


def connect(url: str) -> Redis | None:
    """The store at `unix://…` or `redis://…`; None where no store is configured."""
    if not url:
        return None
    return Redis.from_url(
        url, socket_timeout=STORE_TIMEOUT, socket_connect_timeout=STORE_TIMEOUT, protocol=2
    )


def checked_key(given: str | None) -> str | None:
    """The header's value. Raises Refusal."""
    if given is None:
        return None
    if not 0 < len(given.encode("latin-1")) <= KEY_LIMIT:
        raise Refusal(
            "invalid_value",
            f"Idempotency-Key must have 1 to {KEY_LIMIT} bytes",
            param="Idempotency-Key",
        )
    return given


def hash_of(route: str, body: bytes) -> str:
    return hashlib.sha256(route.encode() + b"\n" + body).hexdigest()


class Idempotency:
    def __init__(self, store: Redis | None, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    async def claim(self, tenant: str, key: str, own: Claim) -> Claim:
        """`own` if the key was free, else what it names. Raises Refusal: another body, or no store."""
        if self._store is None:
            raise Refusal("store_unavailable", "no store is configured, so keys cannot be kept")
        digest = hashlib.sha256(key.encode("latin-1")).hexdigest()
        name = f"{self._prefix}:idempotency:{tenant}:{digest}"
        try:
            if await self._store.set(name, msgspec.json.encode(own), nx=True, ex=LIFE):
                return own
            held = await self._store.get(name)
            if held is None:  # it expired in between
                await self._store.set(name, msgspec.json.encode(own), ex=LIFE)
                return own
        except (RedisError, OSError, TimeoutError) as error:
            raise Refusal(
                "store_unavailable", f"the store does not answer: {error}", retry_after=2
            ) from error
        claim = msgspec.json.decode(held, type=Claim)
        if claim.hash != own.hash:
            raise Refusal(
                "idempotency_conflict",
                "this Idempotency-Key was used with another body",
                param="Idempotency-Key",
            )
        return claim
