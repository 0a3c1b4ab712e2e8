"""The simulated installation: a cluster, a store, processes, and what goes wrong with them."""

import asyncio
import random
from collections import Counter
from contextvars import copy_context
from functools import partial

from pipeline.log import Outgoing
from pipeline.member import Member, new_epoch
from pipeline.memory import MemoryCluster
from pipeline.settings import Settings
from pipeline.simulation import VirtualClock
from pipeline.topics import Topics
from schemas.codec import encode
from schemas.models import Model
from workers.job import Job
from workers.role import run as worker

from .device import watched
from .processes import ROLES, Process, chance_of, edge
from .scenario import ROLES as COUNTS
from .scenario import Scenario
from .store import Store
from .trouble import Trouble
from .witness import Witness

MODEL = "null"
# of one poison: at eight in a row it ends; a zombie's order, or one sent twice, may begin it again
DEATHS = 2 * 8
FAR = 0.03  # s that each operation of an edge takes where it is far away
RESTART = 0.3  # s until the supervisor has started a process again


class World:
    """Everything of one seed. `told` counts what really happened, so that a report can say so."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock(self.loop)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.session_timeout = scenario.session
        self.topics = Topics(
            requests_partitions=2,
            ledger_partitions=2,
            work_partitions=scenario.inboxes,
            tokens_partitions=4,
        )
        for spec in self.topics.all():
            self.cluster.create(spec)
        self.store = Store()
        self.context = copy_context()  # nobody's: what the world does goes on while processes stop
        self.chance = random.Random(f"world {scenario.seed}")
        self.members: dict[str, Process] = {}
        self.lives: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.doomed: set[str] = set()  # requests of which a record cannot be read: they may fail
        self.deaths: list[str] = []  # processes that ended by themselves: a fault of ours
        self.limit = asyncio.timeout(None)  # of the whole story
        self.timeline: list[tuple[float, str]] = []
        self.witness = Witness(self.cluster, self.topics, self.told)
        self.cluster.committed = self.witness.committed
        self.trouble = Trouble(self)
        self._skews = dict(zip(self.names(), scenario.skews, strict=True))
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def names() -> list[str]:
        return [f"{role}-{i}" for role, count in COUNTS.items() for i in range(1, count + 1)]

    async def open(self) -> None:
        self.client = self.cluster.connect("client")
        self.writer = await self.client.writer()
        model = Model(name=MODEL, revision="0" * 64, format="null", context=4096, engine="null")
        await self.writer.send(Outgoing(self.topics.models, encode(model), MODEL.encode()))
        self.cluster.fate = self.trouble.fate
        for name in self.names():
            self.start(name)

    def note(self, what: str) -> None:
        self.timeline.append((self.loop.time(), what))

    # processes

    def start(self, name: str) -> Process:
        role = name.rpartition("-")[0]
        self.lives[name] += 1
        life = self.lives[name]
        chance = chance_of(self.scenario.seed, name, life)
        clock = VirtualClock(self.loop, self._skews[name])
        log = self.cluster.connect(f"{name}/{life}", clock=clock)
        member = Member(
            id=name,
            role=role,
            epoch=new_epoch(chance),
            log=log,
            clock=clock,
            chance=chance,
            settings=self._settings(),
            topics=self.topics,
        )
        process = Process(member, log)
        if role == "edge":
            log.slow(FAR if self.scenario.far else 0.0)
            work = edge(process, self.store)
        elif role == "worker":
            build = watched(log, self.witness.faults.append, partial(self._began, name, process))
            work = worker(member, inline=True, build=build)
        else:
            work = ROLES[role](member)
        task = process.start(work)
        task.add_done_callback(lambda task: self._ended(name, process, task), context=self.context)
        self.members[name] = process
        self.note(f"{name} starts, life {life}")
        return process

    def _began(self, name: str, process: Process, job: Job) -> None:
        """A poison kills whoever begins it; of which ask a job is, its seed says."""
        if job.sampling.seed == self.scenario.poison and not process.ended:
            self.told["killed by a poison"] += 1
            self.note(f"{name} dies of its poison")
            if self.told["killed by a poison"] == DEATHS + 1:
                self.witness.faults.append(f"one poison killed {DEATHS + 1} workers")
                self.limit.reschedule(self.loop.time())  # it would go on until the deadline
            process.kill()
            self._later(RESTART, name)

    def _settings(self) -> Settings:
        settings = Settings(model=MODEL)
        settings.kafka.static_members = self.scenario.static
        settings.orchestration.parked = self.scenario.parked
        settings.worker.engine = "null"
        settings.worker.null_rate = self.scenario.rate
        settings.worker.null_vary = "attempt" if self.scenario.vary else ""
        settings.worker.slots = self.scenario.slots
        return settings

    def _ended(self, name: str, process: Process, task: "asyncio.Task[None]") -> None:
        if process.ended or task.cancelled():
            return
        error = task.exception()
        if error is not None:  # production's supervisor would start it again, and so do we
            process.kill()
            self.deaths.append(f"{name}: {error!r}")
            self.note(f"{name} dies: {error!r}")
            self.told["died"] += 1
            self._later(RESTART, name)

    def _later(self, delay: float, name: str) -> None:
        async def wait() -> None:
            await asyncio.sleep(delay)
            if self.members[name].ended:
                self.start(name)

        task = self.loop.create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for process in self.members.values():
            process.ended = True
            if process.task is not None:
                process.task.cancel()
        tasks = [p.task for p in self.members.values() if p.task is not None]
        await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
