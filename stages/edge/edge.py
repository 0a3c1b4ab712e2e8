"""What the routes stand on: everything an edge holds."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline import metrics
from pipeline.log import LogUnavailable
from pipeline.member import Member
from pipeline.members import Members
from pipeline.settings import EdgeSettings
from pipeline.table import Table
from schemas.models import Model

from .admission import Admission, Sample, sample
from .attachments import Attachments
from .feeds import Feed, Feeds
from .follow import Follower, no_broker
from .idempotency import Idempotency
from .outbox import Outbox
from .tail import Tails

RECENT = 10_000  # requests begun here that this edge knows before the log says anything of them


SAMPLE_AGE = 0.1  # s: statuses come once a second, and a look at all of them is not free


class Begun(NamedTuple):
    """A request begun on this edge."""

    tenant: str
    lane: str
    model: str
    kind: str


@dataclass(slots=True)
class Edge:
    member: Member
    members: Members
    models: Table[Model]
    feeds: Feeds
    tails: Tails
    follower: Follower
    outbox: Outbox
    attachments: Attachments
    admission: Admission
    idempotency: Idempotency
    recent: OrderedDict[str, Begun] = field(default_factory=OrderedDict)
    samples: dict[str, tuple[float, Sample]] = field(default_factory=dict)  # lane → taken, what

    @property
    def settings(self) -> EdgeSettings:
        return self.member.settings.edge

    def check_broker(self) -> None:
        """Raises Refusal at once where a wait for the broker would be in vain."""
        if "start" in self.member.missing:
            raise no_broker("this edge is still starting")
        if self.tails.shared.away is not None:
            raise no_broker(self.tails.shared.away)
        self.outbox.check()

    def remember(self, request_id: str, begun: Begun) -> None:
        self.recent[request_id] = begun
        if len(self.recent) > RECENT:
            self.recent.popitem(last=False)

    def sample(self, lane: str) -> Sample:
        """How the lane stands, looked at again after `SAMPLE_AGE`."""
        now = asyncio.get_running_loop().time()
        taken, latest = self.samples.get(lane, (0.0, None))
        if latest is None or now - taken > SAMPLE_AGE:
            live = self.members.live
            latest = sample(
                lane,
                live("worker"),
                live("orchestration"),
                len(live("edge")),
                self.admission.shares.get(lane, 0.0),
            )
            self.samples[lane] = (now, latest)
        return latest

    def followed(self, feed: Feed, *, own: bool = False) -> "Followed":
        """The feed gets its request's records from now on. `own`: its id was minted into an own slot.
        Raises Refusal."""
        return Followed(self, feed, own)


class Followed:
    def __init__(self, edge: Edge, feed: Feed, own: bool) -> None:
        self.edge = edge
        self.feed = feed
        self.own = own
        self.release: Callable[[], None] | None = None

    async def __aenter__(self) -> None:
        self.edge.feeds.add(self.feed)
        if not self.own:
            try:
                self.release = await self.edge.tails.follow(self.feed.request_id)
            except BaseException as error:
                self.edge.feeds.remove(self.feed)
                if isinstance(error, LogUnavailable):
                    raise no_broker(error) from error
                raise
        metrics.streams_open.inc()

    async def __aexit__(self, *exception: object) -> None:
        if self.release is not None:
            self.release()
        self.edge.feeds.remove(self.feed)
        metrics.streams_open.dec()
