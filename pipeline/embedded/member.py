"""A member of a consumer group: what it says, what it waits for, what it learns."""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.embedded.errors import Refused


class State(enum.StrEnum):
    """A group's state, as DescribeGroups spells it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, eq=False)
class Member:
    """One member. `joining` and `syncing` are its open requests, if there are any."""

    id: str
    instance: str | None
    client_id: str
    host: str
    session_timeout: float  # s
    rebalance_timeout: float  # s
    protocols: dict[str, bytes]  # assignor → subscription
    assignment: bytes = b""
    deadline: float = 0.0  # loop time at which its session ends
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[bytes] | None = None


class Joined(NamedTuple):
    """What a member learns when a rebalance is complete; `members` only for the leader."""

    generation: int
    protocol: str
    leader: str
    member: str
    members: tuple[Member, ...] = ()
    skip_assignment: bool = False


class Joining(NamedTuple):
    """What a member says when it joins; timeouts in s."""

    member: str
    instance: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: dict[str, bytes]
    id_required: bool  # a new dynamic member gets its id first and joins again with it
    may_skip: bool  # a leader that is told to leave the assignment as it is (KIP-814)


def is_open(future: asyncio.Future[Joined] | asyncio.Future[bytes] | None) -> bool:
    """Whether somebody still waits for this answer."""
    return future is not None and not future.done()


def refuse(future: asyncio.Future[Joined] | asyncio.Future[bytes] | None, refused: Refused) -> None:
    """Answer an open request with an error."""
    if future is not None and not future.done():
        future.set_exception(refused)


def elected_protocol(members: Collection[Member]) -> str:
    """The assignor that most members prefer, of those that all know."""
    common = set.intersection(*(set(member.protocols) for member in members))
    votes = Counter(next(name for name in member.protocols if name in common) for member in members)
    return votes.most_common(1)[0][0]
