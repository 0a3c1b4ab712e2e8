"""What must hold after a fault, whatever it was."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.chaos.load import Load
from tests.chaos.scene import Hit, Scene
from tests.chaos.stream import Stream, uncut
from tests.chaos.topics import Marks, Said, Told, said, since
from tests.flow.log_reading import decoded

RESULT_LIMIT = 120.0  # s for the results of everything that was accepted
COMPARED = 64  # finished streams read again from the beginning, besides every resumed one
AT_ONCE = 8


@dataclass
class Verdict:
    """One row of the report."""

    fault: str
    hits: list[Hit]
    accepted: int = 0
    lost: int = 0
    twice: int = 0  # requests with two distinct outcomes
    torn: int = 0  # streams that were not what the log says: gaps, repeats, other bytes
    compared: int = 0
    resumed: int = 0
    attempts: int = 0  # requests that took more than one
    said: Said = field(default_factory=Said)
    silences: list[float] = field(default_factory=list)  # s, of streams in flight at a hit
    refused: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


async def judge(
    name: str, expects: str, scene: Scene, http: httpx.AsyncClient, marks: dict[str, Marks]
) -> Verdict:
    load, told = scene.load, scene.load.results.told
    made = Verdict(name, scene.hits, problems=scene.problems)
    accepted = load.accepted()
    asked = await asyncio.to_thread(requested, scene, marks["requests"])
    made.accepted = len(accepted)
    missing = await load.results.until_told(accepted | asked, RESULT_LIMIT)
    made.lost = len(missing)
    made.problems += [f"no outcome: {each}" for each in sorted(missing)]
    made.problems += [f"not on the requests topic: {each}" for each in sorted(accepted - asked)]
    for each in accepted & told.keys():
        made.twice += len(told[each]) > 1
        made.outcomes.update(one.outcome for one in told[each])
        made.attempts += max(one.attempts for one in told[each]) > 1
        made.problems += wrong(each, told[each], load.shape.tokens)
    made.problems += other_answers(load)
    made.refused = sum(stream.refused for stream in load.streams)
    made.resumed = sum(bool(stream.resumed) for stream in load.streams)
    made.problems += [f"{s.request_id}: {error}" for s in load.streams for error in s.errors]
    await compare(load, http, made)
    made.said = await asyncio.to_thread(
        said, scene.fleet.kafka, scene.fleet.topic("tokens"), marks["tokens"]
    )
    until = [*(hit.at for hit in scene.hits[1:]), float("inf")]
    for hit, end in zip(scene.hits, until, strict=True):
        made.silences += load.silences(hit.at, end)
        if not hit.streams + hit.published:
            made.problems.append(f"nothing was in flight when it hit {hit.member or name}")
    if not scene.hits:
        made.problems.append("nothing was hit")
    if expects and not getattr(made, expects):
        made.problems.append(f"it hit no work: {expects} is 0")
    return made


def wrong(request_id: str, told: set[Told], tokens: int) -> list[str]:
    """Every accepted request ends once, completed, with all of its tokens."""
    if len(told) > 1:
        return [f"{request_id} ended as {sorted(map(str, told))}"]
    only = next(iter(told))
    if only.outcome != "completed" or only.tokens != tokens:
        return [f"{request_id} ended as {only}"]
    return []


def other_answers(load: Load) -> list[str]:
    """The same question has the same answer, whichever attempt gave it and whoever sat beside it."""
    answers: dict[int, Counter[str]] = {}
    for request_id, which in load.asked.items():
        for told in load.results.told.get(request_id, ()):
            answers.setdefault(which, Counter())[told.answer] += 1
    return [f"question {which} has {dict(c)}" for which, c in answers.items() if len(c) > 1]


def requested(scene: Scene, marks: Marks) -> set[str]:
    """Ids of everything on the requests topic: also of those whose client never heard the answer."""
    found = since(scene.fleet.kafka, scene.fleet.topic("requests"), marks)
    return {decoded(message).get("id") or (message.key() or b"").decode() for message in found}


async def compare(load: Load, http: httpx.AsyncClient, made: Verdict) -> None:
    """What clients read, cut and resumed, against the same streams read in one piece."""
    ended = [stream for stream in load.streams if stream.ended is not None]
    whole = [stream for stream in ended if not stream.resumed]
    chosen = [stream for stream in ended if stream.resumed]
    chosen += random.Random(3).sample(whole, min(COMPARED, len(whole)))
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, stream: Stream) -> None:
        async with gate:
            try:
                expected = await uncut(http, load.edge(number), stream)
            except TimeoutError:
                made.problems.append(f"{stream.request_id}: it cannot be read again")
                return
        ids = [frame.id for frame in stream.frames]
        if stream.joined != expected or len(set(ids)) != len(ids):
            made.torn += 1
            made.problems.append(f"{stream.request_id}: its stream is not what the log says")

    await asyncio.gather(*(one(number, stream) for number, stream in enumerate(chosen)))
    made.compared = len(chosen)
