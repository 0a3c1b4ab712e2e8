"""Everything at once, by seed: kills, pauses until declared dead, lost acks, late and repeated batches,
rebalances, cancels that race. One outcome each; the stream is the result."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from pipeline.log import Outgoing, TopicPartition
from pipeline.memory import Fate
from tests.stages.stand import Process, Stand, on_stand

ROLES = ("orchestration", "delivery", "worker")


def _fates(stand: Stand, chance: random.Random) -> None:
    """One batch in twenty has a bad day."""

    def fate(name: str, at: TopicPartition, batch: Sequence[Outgoing]) -> Fate:
        if name.startswith("client") or chance.random() > 0.05:
            return Fate(delay=chance.random() * 0.01)
        return chance.choice(
            [
                Fate(acked=False),
                Fate(lands=False),
                Fate(delay=chance.random() * 3),
                Fate(again=chance.random() * 20),
                Fate(delay=12.0),  # given up by its writer, sent again, and landing after all
            ]
        )

    stand.cluster.fate = fate


async def _trouble(stand: Stand, chance: random.Random) -> None:
    for _ in range(chance.randint(3, 7)):
        await asyncio.sleep(chance.random() * 4)
        alive = [p for p in stand.processes if not p.ended]
        victim: Process = chance.choice(alive)
        kind = chance.choice(["kill", "pause", "drain", "rebalance"])
        if kind == "kill":
            victim.kill()
            await asyncio.sleep(chance.random() * 3)
            stand.start(victim.member.role, victim.member.id)
        elif kind == "pause":
            victim.log.pause()
            await asyncio.sleep(chance.choice([1, 5, 12, 60]) * chance.random())
            victim.log.resume()
        elif kind == "drain":
            victim.ended = True
            victim.member.draining.set()
            await asyncio.sleep(chance.random())
            stand.start(victim.member.role, victim.member.id + "+")
        else:
            stand.cluster.rebalance(chance.choice(["hr.orchestration", "hr.delivery"]))


async def _load(stand: Stand, chance: random.Random) -> None:
    for _ in range(40):
        lane = chance.choice(["gold", "silver", "bronze"])
        ready = stand.ready(chance.randint(1, 32), lane=lane)
        await stand.publish(ready)
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random())
            await stand.publish(ready)  # ingress read it again
        if chance.random() < 0.15:
            await asyncio.sleep(chance.random() * 2)
            await stand.cancel(ready.request_id)
        await asyncio.sleep(chance.random() * 0.3)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_seen_twice(seed: int) -> None:
    async def story(stand: Stand) -> None:
        chance = random.Random(f"trouble {seed}")
        for role in ROLES:
            for i in (1, 2):
                stand.start(role, f"{role}-{i}")
        _fates(stand, chance)
        load = asyncio.create_task(_load(stand, chance))
        await _trouble(stand, chance)
        await load
        stand.cluster.fate = None
        await stand.ended(limit=400)
        await asyncio.sleep(30)  # whatever is late
        stand.check()

    vary = "attempt" if seed % 2 else ""
    on_stand(story, seed=seed, worker={"null_rate": 20, "null_vary": vary})
