"""What the edges admit by: how much waits in our partitions, and how fast it goes."""

import asyncio
import math

from pipeline import logs, metrics
from pipeline.lag import lag_and_ends
from pipeline.log import LogUnavailable, TopicPartition
from pipeline.topics import LANES
from schemas.status import OrchestratorFigures

from .arrivals import Arrivals
from .desk import Desk

EVERY = 1.0  # s between samples
STILL = 5.0  # s between them while nothing moves: edges count what they have let in since the last
MEMORY = 10.0  # s: the time constant of the moving average of the rates


class Figures:
    def __init__(self, desk: Desk, arrivals: Arrivals) -> None:
        self.desk = desk
        self.arrivals = arrivals
        self.leased: dict[str, int] = {}  # lane → requests leased since the last sample
        self.rates = dict.fromkeys(LANES, 0.0)
        self.waiting = dict.fromkeys(LANES, 0)
        self.requests_lag = 0
        self.requests_ends: list[int] = []
        self.sampled = 0  # ms
        self._seen: dict[TopicPartition, tuple[str, int]] = {}  # ready partition → lane, watermark
        self._age = STILL  # s since the last sample

    def now(self) -> OrchestratorFigures:
        books = self.desk.books
        return OrchestratorFigures(
            partitions=sorted(books),
            caught_up=all(each.active for each in books.values()),
            waiting=self.waiting,
            rate=self.rates,
            requests_lag=self.requests_lag,
            requests_ends=self.requests_ends,
            sampled=self.sampled,
        )

    def count(self, lane: str) -> None:
        """A request of this lane was leased for the first time."""
        self.leased[lane] = self.leased.get(lane, 0) + 1

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(EVERY)
            now = loop.time()
            leased = bool(self.leased)
            self._rates(now - last)
            self._age += now - last
            last = now
            if not leased and self._age < STILL and self._still():
                continue
            try:
                await self._sample()
                self._age = 0.0
            except LogUnavailable as error:
                logs.warn("figures", error=error)

    def _still(self) -> bool:
        """Nothing waited at the last sample, and nothing has come or gone since."""
        return not (self.requests_lag or any(self.waiting.values())) and self._done() == self._seen

    def _done(self) -> dict[TopicPartition, tuple[str, int]]:
        """Of each partition that is ours: its lane, and from where on its records are not leased."""
        return {
            TopicPartition(source.topic, p): (source.lane, tracker.watermark)
            for source in self.arrivals.sources.values()
            if source.lane
            for p, tracker in source.trackers.items()
        }

    def _rates(self, passed: float) -> None:
        keep = math.exp(-passed / MEMORY)
        leased, self.leased = self.leased, {}
        for lane in LANES:
            rate = leased.get(lane, 0) / passed
            self.rates[lane] = round(keep * self.rates[lane] + (1 - keep) * rate, 4)

    async def _sample(self) -> None:
        """The queue is what is ready and not leased: from what may be committed to the end.

        Ingress' commits come first: what passes it meanwhile is counted twice, never not at all.
        """
        member = self.desk.member
        done = self._done()
        requests = [
            TopicPartition(member.topics.requests, p)
            for p in range(member.topics.requests_partitions)
        ]
        admin, ingress = member.log.admin, f"{member.topics.prefix}.ingress"
        behind, ends = await lag_and_ends(admin, ingress, requests, beside=done)
        self.requests_lag = sum(behind.values())
        self.requests_ends = [ends[at] for at in requests]
        waiting = dict.fromkeys(LANES, 0)
        for at, (lane, offset) in done.items():
            waiting[lane] += max(0, ends[at] - offset)
        self.waiting, self.sampled, self._seen = waiting, member.clock.ms(), done
        for lane, count in waiting.items():
            metrics.requests_waiting.labels(lane).set(count)
            metrics.stage_lag.labels(member.topics.ready(lane), lane).set(count)
