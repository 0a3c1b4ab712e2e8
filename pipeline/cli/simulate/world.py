"""The simulated installation: a cluster, a store, processes, and what goes wrong with them."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextvars import copy_context

from msgspec import msgpack

from pipeline.log import Outgoing, TopicPartition
from pipeline.member import Member, new_epoch
from pipeline.memory import Fate, MemoryCluster
from pipeline.settings import Settings
from pipeline.simulation import VirtualClock
from pipeline.topics import Topics
from schemas.codec import encode, headers_of
from schemas.ids import mint
from schemas.models import Model
from workers.role import run as worker

from .device import watched
from .processes import ROLES, Process, chance_of, edge
from .scenario import LOG_FAULTS, Fault, Scenario
from .scenario import ROLES as COUNTS
from .store import Store
from .witness import Witness

MODEL = "null"
FUTURE = {"requests": "request", "ready": "ready", "ledger": "output", "work": "order"}
RESTART = 0.3  # s until the supervisor has started a process again
NULL_RATE = 20.0  # tokens/s of a stream: 4 to 32 tokens take 0.2 to 1.6 s


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
        self.timeline: list[tuple[float, str]] = []
        self.witness = Witness(self.cluster, self.topics, self.told)
        self.cluster.committed = self.witness.committed
        self._hits: list[tuple[float, Fault]] = []  # (until, fault) of the log
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
        self.cluster.fate = self.fate
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
            work = edge(process, self.store)
        elif role == "worker":
            work = worker(member, inline=True, build=watched(log, self.witness.faults.append))
        else:
            work = ROLES[role](member)
        task = process.start(work)
        task.add_done_callback(lambda task: self._ended(name, process, task), context=self.context)
        self.members[name] = process
        self.note(f"{name} starts, life {life}")
        return process

    def _settings(self) -> Settings:
        settings = Settings(model=MODEL)
        settings.kafka.static_members = self.scenario.static
        settings.worker.engine = "null"
        settings.worker.null_rate = NULL_RATE
        settings.worker.null_vary = "attempt" if self.scenario.vary else ""
        settings.worker.slots = 16
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

    # faults

    async def strike(self) -> None:
        """All faults of the scenario, each at its time."""
        async with asyncio.TaskGroup() as group:
            for fault in self.scenario.faults:
                await asyncio.sleep(max(0.0, fault.at - self.loop.time()))
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        self.told[fault.kind] += 1
        self.note(f"fault: {fault.kind} {fault.target} for {fault.lasts:.2f} s")
        if fault.kind in LOG_FAULTS:
            await self._strike_log(fault)
        elif fault.kind == "rebalance":
            self.cluster.rebalance(f"hr.{fault.target}")
        elif fault.kind == "store_lost":
            self.store.away = True
            await asyncio.sleep(fault.lasts)
            self.store.away = False
        elif fault.kind == "poison":
            self._poison(fault.target)
        elif fault.kind == "future":
            self._future(fault.target)
        else:
            await self._strike_process(fault)

    async def _strike_process(self, fault: Fault) -> None:
        process = self.members[fault.target]
        if process.ended or process.held:
            return
        if fault.kind == "kill":
            process.kill()
            await asyncio.sleep(min(fault.lasts, 5.0))
            self.start(fault.target)
        elif fault.kind == "drain":
            process.ended = True
            process.member.draining.set()
            if process.task is not None:
                await asyncio.wait({process.task}, timeout=25.0)
            process.kill()
            self.start(fault.target)
        elif fault.kind == "pause":
            process.stop()
            await asyncio.sleep(fault.lasts)
            process.go_on()
        elif fault.kind in ("deaf", "cut_off"):
            process.log.pause() if fault.kind == "deaf" else process.log.lose()
            await asyncio.sleep(fault.lasts)
            process.log.resume()
        else:
            process.log.slow(0.05)
            await asyncio.sleep(fault.lasts)
            process.log.slow(0.0)

    async def _strike_log(self, fault: Fault) -> None:
        if fault.kind == "unavailable":
            topic = f"hr.{fault.target}"
            at = TopicPartition(topic, self.chance.randrange(self.cluster.count(topic)))
            self.cluster.set_available([at], False)
            await asyncio.sleep(min(fault.lasts, 5.0))
            self.cluster.set_available([at], True)
            return
        self._hits.append((self.loop.time() + fault.lasts, fault))

    def fate(self, name: str, at: TopicPartition, batch: Sequence[Outgoing]) -> Fate:
        """What becomes of one batch: mostly a few milliseconds."""
        delay = self.chance.random() * 0.004
        now = self.loop.time()
        for until, fault in self._hits:
            if now > until or not at.topic.endswith(fault.target) or name == "client":
                continue
            if self.chance.random() > fault.share:
                continue
            self.told[f"batches {fault.kind}"] += 1
            if fault.kind == "lost_acks":
                return Fate(delay=delay, acked=False)
            if fault.kind == "lost_writes":
                return Fate(lands=False)
            if fault.kind == "late":  # given up, sent again, and landing after all
                return Fate(delay=self.chance.choice([0.5, 2.0, 11.0]))
            return Fate(delay=delay, again=self.chance.random() * 15)
        return Fate(delay=delay)

    def _poison(self, target: str) -> None:
        """Bytes that nobody can read, or a tag of the future."""
        topic = "hr.ready.silver" if target == "ready" else f"hr.{target}"
        value = self.chance.choice(
            [b"\xff\x00garbage", b"{", None, b'{"type":"future/9","request_id":"x"}', b"\x93\x01"]
        )
        headers = self.chance.choice([(), (("type", b"future/9"),)])
        self.writer.send(Outgoing(topic, value, b"poison", headers=headers))

    def _future(self, target: str) -> None:
        """A version ahead of its readers: a record whose tag nobody here knows, of a request all the same.

        At the doors it is a request of its own; behind them it speaks of one that runs.
        """
        tag, attempt = f"{FUTURE[target]}/9", 0
        if target in ("requests", "ready"):
            request_id = mint(self.clock.ms(), self.chance)
        else:
            running = sorted(self.witness.running())
            if not running:
                return
            request_id, attempt = self.chance.choice(running)
        self.doomed.add(request_id)
        headers = headers_of(tag, request_id=request_id, attempt=attempt, lane="silver")
        value = msgpack.encode({"type": tag, "request_id": request_id, "what": "nobody knows yet"})
        topic = "hr.ready.silver" if target == "ready" else f"hr.{target}"
        partition = None
        if target == "work":
            partition = self.chance.randrange(self.scenario.inboxes)
        self.writer.send(Outgoing(topic, value, request_id.encode(), partition, headers))

    def calm(self) -> None:
        """Faults stop: from here on everything must drain."""
        self._hits.clear()
        self.store.away = False
        for process in self.members.values():
            process.log.slow(0.0)

    async def close(self) -> None:
        for process in self.members.values():
            process.ended = True
            if process.task is not None:
                process.task.cancel()
        tasks = [p.task for p in self.members.values() if p.task is not None]
        await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
