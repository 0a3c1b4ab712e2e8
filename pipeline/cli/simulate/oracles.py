"""What must be true at the end of every seed, read from the log and from what clients saw."""

from collections import defaultdict
from collections.abc import Iterator

from pipeline.log import Record, TopicPartition
from schemas.codec import Unreadable, decode, header
from schemas.request import TIER_LANES
from schemas.result import Result
from schemas.status import Status
from schemas.work import Ready
from workers.job import Emission, Job, Sampling
from workers.null import NullEngine

from .clients import Client
from .world import World

JUST_NOW = 4_000  # ms: what landed so late may still be under way, or its commit is
NEAR_GRACE = 12.0  # s: the grace is 15, and an attach may be a few seconds on its way


class Violated(AssertionError):
    """A promise was broken."""


def records(world: World, topic: str) -> Iterator[Record]:
    for number in range(world.cluster.count(topic)):
        partition = world.cluster.partition(TopicPartition(topic, number))
        yield from partition.read(partition.start, 1 << 30)


def results(world: World) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    for record in records(world, world.topics.results):
        try:
            result = decode(record.value, Result)
        except Unreadable:
            continue  # a poisoned record: nobody's result
        found[result.id].append(result)
    return found


def check(world: World, clients: list[Client]) -> None:
    """Raises Violated with all that is wrong."""
    faults = list(_violations(world, clients))
    if faults:
        raise Violated("\n".join(faults))


def _violations(world: World, clients: list[Client]) -> Iterator[str]:
    world.witness.look()
    yield from world.witness.faults
    outcomes = results(world)
    ready = _ready(world)
    yield from (f"a process died: {each}" for each in world.deaths if "LogUnavailable" not in each)
    for client in clients:
        name = f"request {client.ask.number} ({client.ask.way}, {client.request_id})"
        if len(client.ids_of_key) > 1:
            yield f"{name}: one key, ids {sorted(client.ids_of_key)}"
        if not client.accepted:
            continue
        same = outcomes.get(client.request_id, [])
        distinct = {(each.outcome, each.output) for each in same}
        if len(distinct) != 1:
            yield f"{name}: outcomes {sorted(distinct)}"
            continue
        result = same[0]
        yield from (f"{name}: {fault}" for fault in _ending(client, result))
        if result.outcome == "failed":
            continue  # its output cannot be read: what was said stands, and the outcome says so
        yield from (f"{name}: {fault}" for fault in _stream(client, result))
        yield from (f"{name}: {fault}" for fault in _slot(world, client.request_id, result))
        if client.request_id in ready and result.outcome == "completed" and not world.scenario.vary:
            expected = _fault_free(ready[client.request_id], world)
            if result.choices[0].token_ids != expected:
                yield f"{name}: other tokens than without faults"
        yield from (f"{name}: {fault}" for fault in _frames(world, client))
    yield from _bounds(world)
    yield from _drained(world)


def _frames(world: World, client: Client) -> Iterator[str]:
    """Every frame is a record that counts: nothing of a superseded attempt was shown. And each record
    is shown when it is read: nothing that the slot holds is left to the end."""
    shown = world.witness.shown[client.request_id]
    seen = set()
    for frame in client.frames:
        if frame.id is not None:
            seen.add(offset := int(frame.id.partition("-")[0]))
            if offset not in shown:
                yield f"it was shown {frame.raw!r}, which does not count"
    late = world.witness.said[client.request_id] - seen
    if client.finished and client.frames and late:
        yield f"it was told {sorted(late)} of its slot only at the end"


def _bounds(world: World) -> Iterator[str]:
    """No worker ever held more than it offered: all orchestrators together a share too many at most."""
    lives = world.lives["orchestration-1"] + world.lives["orchestration-2"]
    for record in records(world, world.topics.status):
        if header(record.headers, "type") == b"status/1" and record.value:
            said = decode(record.value, Status).worker
            if said is not None and len(said.running) > (said.slots + said.slots // 8) * lives:
                yield f"a worker of {said.slots} slots holds {len(said.running)} orders"


def _ending(client: Client, result: Result) -> Iterator[str]:
    ask = client.ask
    poison = ask.number == client.world.scenario.poison
    reasons = {
        "cancelled": ask.cancel_after is not None or client.left or client.longest_gap > NEAR_GRACE,
        "expired": ask.deadline is not None,
        "refused": ask.deadline is not None,  # a deadline that had passed at the door
        "failed": client.request_id in client.world.doomed or poison,
    }
    if poison and result.outcome == "completed":
        yield "a poison was completed"
    if result.outcome != "completed" and not reasons.get(result.outcome, False):
        yield f"ended {result.outcome} {result.error} though nothing asked for it"
    if result.lane != TIER_LANES[ask.tier] and result.outcome != "failed":
        yield f"ran in lane {result.lane}: {result}"
    if result.outcome == "completed" and result.usage.completion_tokens != ask.tokens:
        yield f"completed with {result.usage.completion_tokens} of {ask.tokens} tokens"


def _stream(client: Client, result: Result) -> Iterator[str]:
    """Gapless, in order, without repeats, and equal to the result."""
    seen = [frame.id for frame in client.frames if frame.id is not None]
    if len(seen) != len(set(seen)):
        yield f"a frame came twice: {seen}"
    if not client.finished or client.ask.way == "publish":
        return
    told = result.choices[0].text if result.choices else ""
    if client.ask.way == "whole":
        body = client.body or {}
        if "choices" in body and body["choices"][0]["message"]["content"] != told:
            yield f"the answer is not the result: {body['choices'][0]} / {told!r}"
        return
    if client.text() != told:
        yield f"the stream is not the result: {client.text()!r} / {told!r}"


def _slot(world: World, request_id: str, result: Result) -> Iterator[str]:
    """The slot's own fold gives the result, and ends with it."""
    ids, end = world.witness.slots[request_id].ids, world.witness.ends.get(request_id)
    told = [token for choice in result.choices for token in choice.token_ids]
    if end is None:
        yield "no end in its slot"
    elif (end.outcome, end.tokens, end.output) != (result.outcome, len(told), result.output):
        yield f"its end is {end}, its result {result.outcome}, {len(told)} tokens, {result.output}"
    if ids != told[: len(ids)] or (ids and len(ids) != len(told)):
        yield f"its slot holds {len(ids)} tokens, its result {len(told)}, or others"


def _ready(world: World) -> dict[str, Ready]:
    found: dict[str, Ready] = {}
    for lane in ("gold", "silver", "bronze"):
        for record in records(world, world.topics.ready(lane)):
            try:
                made = decode(record.value, Ready)
            except Unreadable:
                continue
            found.setdefault(made.request_id, made)
    return found


def _fault_free(ready: Ready, world: World) -> list[int]:
    """What an engine says to this request when nothing goes wrong."""
    engine = NullEngine(clock=world.clock)
    sampling = Sampling(seed=ready.sampling.seed, stop=tuple(ready.sampling.stop))
    engine.add(
        Job(
            request_id=ready.request_id,
            attempt=1,
            prompt_ids=ready.prompt_ids,
            max_tokens=ready.max_tokens,
            sampling=sampling,
        )
    )
    ids: list[int] = []
    while engine.has_work():
        for event in engine.step():
            assert isinstance(event, Emission)
            ids += event.ids
    return ids


def _drained(world: World) -> Iterator[str]:
    """Nobody holds what has ended; everything that was read was committed."""
    last: dict[str, Status] = {}
    for record in records(world, world.topics.status):
        if header(record.headers, "type") == b"status/1" and record.value:
            status = decode(record.value, Status)
            last[status.member] = status
    for name, process in world.members.items():
        status_now = last.get(name)
        if status_now is None or status_now.epoch != process.member.epoch:
            yield f"{name} says nothing of itself"
        elif status_now.worker is not None and status_now.worker.running:
            yield f"{name} still holds {status_now.worker.running}"
        elif status_now.worker is not None and status_now.worker.blocks_used:
            yield f"{name} still holds {status_now.worker.blocks_used} blocks"
    yield from behind(world)


def behind(world: World) -> Iterator[str]:
    """What groups have read, or should have, and not committed."""
    for group in ("hr.ingress", "hr.delivery", "hr.orchestration"):
        for at, commit in world.cluster.group(group).offsets.items():
            partition = world.cluster.partition(at)
            left = partition.read(min(commit.offset, partition.end), 1 << 30)
            if commit.offset > partition.end:
                yield f"{group} committed {commit.offset} of {at}, which ends at {partition.end}"
            elif left and left[0].timestamp < world.clock.ms() - JUST_NOW:
                yield f"{group} left {len(left)} records of {at} incomplete"
