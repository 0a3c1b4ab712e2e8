"""A worker's engine, watched: what it computes after it was told to stop."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

from pipeline.log import TopicPartition
from pipeline.member import Member
from pipeline.memory import MemoryLog
from schemas.codec import Unreadable, decode
from schemas.control import ControlRecord, Wake
from schemas.models import Model
from workers.job import Emission, Engine, Failure, Job
from workers.null import NullEngine, _Choice


class WatchedEngine(NullEngine):
    """The null engine; a step for an attempt whose end has reached the process is the last one."""

    def watch(
        self,
        member: Member,
        log: MemoryLog,
        fault: Callable[[str], None],
        began: Callable[[Job], None],
    ) -> None:
        self._member, self._log, self._fault, self._began = member, log, fault, began
        self._at = TopicPartition(member.topics.control, 0)
        self._life = crc32(member.epoch.encode()) & 0xFFFF
        self._position = 0
        self._over: dict[
            str, tuple[int, int]
        ] = {}  # request → highest attempt over, ms it was heard
        self._superseded: dict[str, int] = {}
        self._after: Counter[tuple[str, int]] = Counter()  # steps since

    def add(self, job: Job) -> None:
        """A cancel that came before its order is repeated by its owner; what is superseded stays so."""
        self._hear()
        superseded = self._superseded.get(job.request_id, 0)
        self._over[job.request_id] = superseded, self._clock.ms()
        super().add(job)

    def _begin(self, job: Job, now: int) -> list[_Choice]:
        """Where tokens depend on the attempt, they do on the process too: one attempt at two workers must
        not look like one stream."""
        self._began(job)
        if self._vary:
            seed = job.sampling.seed ^ self._life
            job = replace(job, sampling=replace(job.sampling, seed=seed))
        return super()._begin(job, now)

    def step(self) -> list[Emission | Failure]:
        self._hear()
        events = super().step()
        for event in events:
            key = (event.request_id, event.attempt)
            attempt, heard = self._over.get(event.request_id, (0, 0))
            if event.attempt <= attempt and self._clock.ms() > heard:  # steps of one moment are one
                self._after[key] += 1
                if self._after[key] == 2:
                    self._fault(f"{self._member.id} still computes {key}, which is over")
        return events

    def _hear(self) -> None:
        """What this process has read of `hr.control` so far."""
        heard = max((reader.heard(self._at) for reader in self._log.readers), default=0)
        if heard <= self._position:
            return
        partition = self._log.cluster.partition(self._at)
        for record in partition.read(self._position, heard - self._position):
            try:
                message: ControlRecord = decode(record.value, ControlRecord)
            except Unreadable:
                continue  # a poisoned one
            if isinstance(message, Wake):
                if message.superseded:
                    known = self._superseded.get(message.request_id, 0)
                    self._superseded[message.request_id] = max(known, message.attempt)
                before, _ = self._over.get(message.request_id, (0, 0))
                if message.attempt > before:
                    self._over[message.request_id] = message.attempt, self._clock.ms()
        self._position = heard


def watched(
    log: MemoryLog, fault: Callable[[str], None], began: Callable[[Job], None]
) -> Callable[[Member, Model], Callable[[], Engine]]:
    """Builds engines as a worker does, watched; `began` hears of each job when its first step begins."""

    def build(member: Member, model: Model) -> Callable[[], Engine]:
        def null() -> Engine:
            settings = member.settings.worker
            engine = WatchedEngine(
                settings.null_rate,
                settings.null_vary == "attempt",
                settings.slots,
                clock=member.clock,
            )
            engine.watch(member, log, fault, began)
            return engine

        return null

    return build
