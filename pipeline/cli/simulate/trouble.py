"""What goes wrong in one seed, each fault at its time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import msgpack

from pipeline.log import Outgoing, TopicPartition
from pipeline.memory import Fate
from schemas.codec import headers_of
from schemas.ids import mint

from .scenario import LOG_FAULTS, ROLE_FAULTS, ROLES, Fault

if TYPE_CHECKING:
    from .world import World

FUTURE = {"requests": "request", "ready": "ready", "ledger": "output", "work": "order"}


LONGEST = 5.0  # s that one process is away, or a partition
DAWDLE = 1.5  # s that a batch takes while a group is handed over


class Trouble:
    """Strikes a world's processes, its log, its store."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._hits: list[tuple[float, Fault]] = []  # (until, fault) of the log

    async def strike(self) -> None:
        """All faults of the scenario, each at its time."""
        async with asyncio.TaskGroup() as group:
            for fault in self.world.scenario.faults:
                await asyncio.sleep(max(0.0, fault.at - self.world.loop.time()))
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        self.world.told[fault.kind] += 1
        self.world.note(f"fault: {fault.kind} {fault.target} for {fault.lasts:.2f} s")
        if fault.kind in LOG_FAULTS:
            await self._strike_log(fault)
        elif fault.kind == "rebalance":
            self.world.cluster.rebalance(f"hr.{fault.target}", move=True)
        elif fault.kind == "handover":
            await self._hand_over(fault)
        elif fault.kind in ROLE_FAULTS:
            await self._strike_role(fault)
        elif fault.kind == "store_lost":
            self.world.store.away = True
            await asyncio.sleep(fault.lasts)
            self.world.store.away = False
        elif fault.kind == "poison":
            self._poison(fault.target)
        elif fault.kind == "future":
            self._future(fault.target)
        else:
            await self._strike_process(fault)

    async def _strike_process(self, fault: Fault) -> None:
        process = self.world.members[fault.target]
        if process.ended or process.held:
            return
        if fault.kind == "kill":
            await self._kill(fault.target, min(fault.lasts, LONGEST))
        elif fault.kind == "drain":
            process.ended = True
            process.member.draining.set()
            if process.task is not None:
                await asyncio.wait({process.task}, timeout=25.0)
            process.kill()
            self.world.start(fault.target)
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

    async def _kill(self, name: str, away: float) -> None:
        process = self.world.members[name]
        if not (process.ended or process.held):
            process.kill()
            await asyncio.sleep(away)
            self.world.start(name)

    async def _strike_role(self, fault: Fault) -> None:
        """All of a role at once, or one after the other without end."""
        names = [f"{fault.target}-{i + 1}" for i in range(ROLES[fault.target])]
        until = self.world.loop.time() + min(fault.lasts, 2 * LONGEST)
        async with asyncio.TaskGroup() as group:
            if fault.kind == "blackout":
                for name in names:
                    group.create_task(self._kill(name, until - self.world.loop.time()))
            while fault.kind == "storm" and self.world.loop.time() < until:
                group.create_task(self._kill(self.world.chance.choice(names), 0.3))
                await asyncio.sleep(self.world.chance.uniform(0.5, 2.0))

    async def _hand_over(self, fault: Fault) -> None:
        """Partitions change hands again and again while what their owners wrote is still on its way."""
        loop, lasts = self.world.loop, min(fault.lasts, LONGEST)
        until = loop.time() + lasts
        self._hits.append((until, replace(fault, target="ledger", share=0.8)))
        while loop.time() < until:
            self.world.cluster.rebalance(f"hr.{fault.target}", move=True)
            await asyncio.sleep(self.world.chance.uniform(0.2, DAWDLE))

    async def _strike_log(self, fault: Fault) -> None:
        if fault.kind == "unavailable":
            topic = f"hr.{fault.target}"
            at = TopicPartition(topic, self.world.chance.randrange(self.world.cluster.count(topic)))
            self.world.cluster.set_available([at], False)
            await asyncio.sleep(min(fault.lasts, LONGEST))
            self.world.cluster.set_available([at], True)
            return
        self._hits.append((self.world.loop.time() + fault.lasts, fault))

    def fate(self, name: str, at: TopicPartition, batch: Sequence[Outgoing]) -> Fate:
        """What becomes of one batch: mostly a few milliseconds."""
        delay = self.world.chance.random() * 0.004
        now = self.world.loop.time()
        for until, fault in self._hits:
            if now > until or not at.topic.endswith(fault.target) or name == "client":
                continue
            if self.world.chance.random() > fault.share:
                continue
            self.world.told[f"batches {fault.kind}"] += 1
            if fault.kind == "lost_acks":
                return Fate(delay=delay, acked=False)
            if fault.kind == "lost_writes":
                return Fate(lands=False)
            if fault.kind == "handover":
                return Fate(delay=self.world.chance.random() * DAWDLE)
            if fault.kind == "late":  # given up, sent again, and landing after all
                return Fate(delay=self.world.chance.choice([0.5, 2.0, 11.0]))
            return Fate(delay=delay, again=self.world.chance.random() * 15)
        return Fate(delay=delay)

    def _poison(self, target: str) -> None:
        """Bytes that nobody can read, or a tag of the future."""
        topic = "hr.ready.silver" if target == "ready" else f"hr.{target}"
        value = self.world.chance.choice(
            [b"\xff\x00garbage", b"{", None, b'{"type":"future/9","request_id":"x"}', b"\x93\x01"]
        )
        headers = self.world.chance.choice([(), (("type", b"future/9"),)])
        self.world.writer.send(Outgoing(topic, value, b"poison", headers=headers))

    def _future(self, target: str) -> None:
        """A version ahead of its readers: a record whose tag nobody here knows, of a request all the same.

        At the doors it is a request of its own; behind them it speaks of one that runs.
        """
        tag, attempt = f"{FUTURE[target]}/9", 0
        if target in ("requests", "ready"):
            request_id = mint(self.world.clock.ms(), self.world.chance)
        else:
            running = sorted(self.world.witness.running())
            if not running:
                return
            request_id, attempt = self.world.chance.choice(running)
        self.world.doomed.add(request_id)
        headers = headers_of(tag, request_id=request_id, attempt=attempt, lane="silver")
        value = msgpack.encode({"type": tag, "request_id": request_id, "what": "nobody knows yet"})
        topic = "hr.ready.silver" if target == "ready" else f"hr.{target}"
        partition = None
        if target == "work":
            partition = self.world.chance.randrange(self.world.scenario.inboxes)
        self.world.writer.send(Outgoing(topic, value, request_id.encode(), partition, headers))

    def calm(self) -> None:
        """Faults stop: from here on everything must drain."""
        self._hits.clear()
        self.world.store.away = False
        for process in self.world.members.values():
            process.log.slow(0.0)
