"""What a worker says of itself."""

import asyncio
from collections.abc import Callable

import pytest

from pipeline.member import Member
from schemas.models import Model
from tests.workers.fakes import HashRunner
from tests.workers.stand import TOPICS, Stand, status, virtual, worker
from workers.engine import TorchEngine
from workers.job import Engine
from workers.role import run


@pytest.mark.parametrize("device_type", ["cpu-avx2", "cpu-avx512", "cuda-sm90"])
def test_a_worker_announces_the_device_type_that_its_engine_computes_on(device_type: str) -> None:
    def build(member: Member, model: Model) -> Callable[[], Engine]:
        runner = HashRunner(64, 16, device_type=device_type)
        return lambda: TorchEngine(runner, clock=member.clock, blocks=64)

    async def main() -> None:
        stand = Stand()
        await stand.begin()
        task = asyncio.create_task(run(stand.member(), inline=True, build=build))
        await stand.until(lambda: (said := stand.status()) and said.worker)
        assert status(stand).device_type == device_type
        task.cancel()
        await asyncio.wait([task])

    virtual(main)


def test_what_the_null_engine_says_is_no_devices_answer() -> None:
    async def main() -> None:
        stand = Stand(device="cpu")
        await stand.begin()
        async with worker(stand):
            assert status(stand).device_type == "null"

    virtual(main)


def test_a_worker_that_cannot_choose_its_model_says_which_setting_names_one() -> None:
    async def main() -> None:
        stand = Stand()
        member = stand.member()
        task = asyncio.create_task(run(member, inline=True))
        await stand.until(lambda: "models pull" in member.missing.get("model", ""))
        await stand.begin()
        other = Model(name="n", revision="s", format="null", context=8192, engine="null")
        await stand.write(TOPICS.models, other, key=b"n", partition=0)
        second = stand.member("worker-2")
        again = asyncio.create_task(run(second, inline=True))
        why = "2 models are registered (m, n): name one, --model or HEADRACE_MODEL"
        await stand.until(lambda: second.missing.get("model") == why)
        assert not second.ready
        await stand.write(TOPICS.models, None, key=b"n", partition=0)
        await stand.until(lambda: (said := stand.status("worker-2")) and said.worker)
        for each in (task, again):
            each.cancel()
        await asyncio.wait([task, again])

    virtual(main)
