"""Whoever dies, whenever: one outcome, one stream, nothing lost."""

import asyncio

import pytest

from tests.stages.stand import Process, Stand, on_stand


def _load(stand: Stand, count: int) -> "asyncio.Task[None]":
    async def ask() -> None:
        for _ in range(count):
            lane = stand.chance.choice(["gold", "silver", "bronze"])
            await stand.ask(stand.chance.randint(1, 32), lane=lane)
            await asyncio.sleep(stand.chance.random() * 0.2)

    return asyncio.create_task(ask())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("role", ["orchestration", "delivery", "worker"])
def test_a_role_is_killed_again_and_again(role: str, seed: int) -> None:
    async def story(stand: Stand) -> None:
        for each in ("orchestration", "delivery", "worker"):
            for i in (1, 2):
                stand.start(each, f"{each}-{i}")
        asked = _load(stand, 40)
        for _ in range(4):
            await asyncio.sleep(stand.chance.random() * 3)
            alive = [p for p in stand.processes if not p.ended and p.member.role == role]
            victim: Process = stand.chance.choice(alive)
            victim.kill()
            await asyncio.sleep(stand.chance.random() * 2)
            stand.start(role, victim.member.id)
        await asked
        await stand.ended(limit=300)
        stand.check()

    on_stand(story, seed=seed, worker={"null_rate": 20, "null_vary": "attempt" if seed % 2 else ""})
