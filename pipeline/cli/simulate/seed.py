"""One seed from its scenario to its verdict."""

import asyncio
import hashlib
import random
import traceback
from collections import Counter
from dataclasses import dataclass, field

from msgspec import msgpack

from pipeline.log import TopicPartition
from pipeline.simulation import run_virtual

from .clients import Client
from .oracles import behind, check, results
from .scenario import SPAN, Scenario
from .world import World

LIMIT = 900.0  # s of virtual time until everything must have drained
SETTLE = 8.0  # s behind the last outcome: what is late still comes, commits are made
LATEST = 30.0  # s more while a group is behind: a write that got lost is sent again after 10
TURNS = 2_000_000  # a livelock is found, not waited for; 20,000 are usual


@dataclass
class Verdict:
    scenario: Scenario
    fault: str = ""  # empty: all promises held
    digest: str = ""  # of the log: the same seed gives the same
    told: Counter[str] = field(default_factory=Counter)
    histories: set[str] = field(default_factory=set)  # ways through the ledger
    timeline: list[tuple[float, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # of the log, on demand


def run_seed(scenario: Scenario, *, explain: bool = False) -> Verdict:
    """Never raises what a seed may show: the verdict says it."""
    verdict = Verdict(scenario)
    chance = random.Random(f"order {scenario.seed}")
    try:
        run_virtual(_story(scenario, verdict, explain), chance=chance, limit=LIMIT * 2, turns=TURNS)
    except AssertionError as error:
        verdict.fault = verdict.fault or str(error)
    except Exception:  # noqa: BLE001 - whatever a seed shows is told
        verdict.fault = verdict.fault or traceback.format_exc(limit=-6)
    return verdict


async def _story(scenario: Scenario, verdict: Verdict, explain: bool) -> None:
    world = World(scenario)
    clients = [Client(world, ask) for ask in scenario.asks]
    try:
        await world.open()
        await _play(world, clients)
        check(world, clients)
    except TimeoutError:
        verdict.fault = _stuck(world, clients)
    finally:
        _tell(world, clients, verdict)
        if explain or verdict.fault:
            from .timeline import log_lines

            verdict.lines = log_lines(world)
        await world.close()


async def _play(world: World, clients: list[Client]) -> None:
    loop = asyncio.get_running_loop()
    world.limit = asyncio.timeout(LIMIT)
    async with world.limit:
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(), name=f"client {client.ask.number}")
            group.create_task(world.trouble.strike(), name="faults")
            group.create_task(_calm(world), name="calm")
        while not _all_ended(world, clients):  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.25)
        world.told["drained after s"] = int(loop.time())
        await asyncio.sleep(SETTLE)
        patience = loop.time() + LATEST
        while loop.time() < patience and any(behind(world)):  # noqa: ASYNC110
            await asyncio.sleep(1.0)


async def _calm(world: World) -> None:
    await asyncio.sleep(SPAN + 1)
    world.trouble.calm()


def _all_ended(world: World, clients: list[Client]) -> bool:
    """Everything that was accepted has ended: of clients that know it, and of those that do not."""
    world.witness.look()
    known = {client.request_id for client in clients if client.accepted}
    return known | world.witness.taken <= world.witness.outcomes.keys()


def _stuck(world: World, clients: list[Client]) -> str:
    ended = results(world)
    unknown = world.witness.taken - ended.keys() - {client.request_id for client in clients}
    open_ones = [
        f"{c.ask.number} ({c.ask.way}, {c.request_id or 'no id yet'})"
        for c in clients
        if (c.accepted and c.request_id not in ended) or not (c.accepted or c.refused or c.left)
    ]
    stuck = f"not drained after {LIMIT:.0f} s: {open_ones + sorted(unknown)}"
    return "\n".join([stuck, *world.witness.faults])


def _tell(world: World, clients: list[Client], verdict: Verdict) -> None:
    told = world.told
    told["requests"] = sum(client.accepted for client in clients)
    told["resumed streams"] = sum(client.cuts > 0 for client in clients)
    for same in results(world).values():
        told[f"outcome {same[0].outcome}"] += 1
        told["attempts above 1"] += same[0].attempts > 1
    verdict.told = told
    verdict.histories = {", ".join(each) for each in world.witness.histories.values() if each}
    verdict.timeline = world.timeline
    verdict.digest = _digest(world)


def _digest(world: World) -> str:
    made = hashlib.sha256()
    for at in sorted(world.cluster.partitions):
        partition = world.cluster.partition(TopicPartition(*at))
        for record in partition.read(partition.start, 1 << 30):
            made.update(msgpack.encode(record))
    return made.hexdigest()[:16]
