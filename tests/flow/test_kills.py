"""kill -9 of each role in turn, under load: nothing is lost, nothing is said twice."""

import asyncio
import signal
from typing import Any

import httpx
import pytest

from tests.flow.installation import Installation
from tests.flow.load import Underway, check_stream, follow, outcomes_of, submit
from tests.flow.waiting import until

TOKENS = 60  # at 20 a second: three seconds in which a kill can hit
DRAINING = 240  # as many as last while one role after the other drains
STREAMS = 16
BEGIN_LIMIT = 60.0  # s until half of them speak
ROLES = ["worker-1", "orchestration-1", "delivery-1", "ingress-1", "edge-1"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def under_load(fleet: Installation, *victims: str, number: int, tokens: int = TOKENS) -> None:
    """Signal these members one after the other while streams run; every one of these ends well."""
    base = fleet.url()
    async with httpx.AsyncClient(timeout=60) as http:
        underway = Underway(STREAMS)

        async def one(number: int) -> tuple[str, list[dict[str, Any]]]:
            request_id = await submit(http, base, number, tokens)
            return request_id, await follow(http, base, request_id, underway)

        await ready(base)
        following = [asyncio.create_task(one(number)) for number in range(STREAMS)]
        begun = asyncio.create_task(underway.half.wait())
        done, _ = await asyncio.wait(
            [begun, *following], timeout=BEGIN_LIMIT, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()  # a request that was refused says so, instead of being waited for
        assert begun in done, "half of the streams did not begin"
        assert not all(task.done() for task in following), "too fast: nothing was in flight"
        for victim in victims:
            await asyncio.to_thread(fleet.restart, victim, number)
        streams = dict(await asyncio.gather(*following))
    for request_id, events in streams.items():
        check_stream(request_id, events, tokens)
    outcomes = await asyncio.to_thread(outcomes_of, fleet, set(streams))
    for request_id in streams:
        assert len(set(outcomes[request_id])) == 1, f"{request_id} ended as {outcomes[request_id]}"


async def ready(base: str) -> None:
    """An edge that lost its broker in the test before refuses until it has heard of a worker again."""
    url = base + "/readyz"
    await asyncio.to_thread(until, lambda: httpx.get(url).status_code == 200, BEGIN_LIMIT)


@pytest.mark.parametrize("victim", [*ROLES, "broker", "store"])
async def test_every_request_ends_once_and_every_stream_goes_on(
    fleet: Installation, victim: str
) -> None:
    await under_load(fleet, victim, number=signal.SIGKILL)


async def test_sigterm_drains_every_role_and_it_ends_with_0(fleet: Installation) -> None:
    """One after the other under one load: no new work, finished or handed over, gone in time."""
    before = {each: exits(fleet, each) for each in ROLES}
    await under_load(fleet, *ROLES, number=signal.SIGTERM, tokens=DRAINING)
    for each in ROLES:
        assert exits(fleet, each)[len(before[each]) :] == [0], fleet.words()


def exits(fleet: Installation, member_id: str) -> list[int]:
    """How each life of a member ended, as its log says."""
    mark = f"--- {member_id} exited with "
    log = (fleet.home / "logs" / f"{member_id}.log").read_text(errors="replace")
    return [int(line.removeprefix(mark)) for line in log.splitlines() if line.startswith(mark)]
