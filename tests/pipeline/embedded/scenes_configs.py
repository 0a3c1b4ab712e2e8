"""Scenes of configs: described, set, appended to, deleted, replaced."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.pipeline.embedded.scene import Answers, create
from tests.pipeline.embedded.scenes_topics import SHOWN
from tests.pipeline.embedded.wire import Wire

TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = range(4)


async def configs_of(
    wire: Wire,
    name: str,
    *,
    version: int = 4,
    kind: int = TOPIC,
    keys: Any = SHOWN,
    synonyms: bool = True,
) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = await wire.call(
        "describe_configs",
        version,
        resources=[resource],
        include_synonyms=synonyms,
        include_documentation=False,
    )
    result = answer.results[0]
    shown = sorted(result.configs, key=lambda each: str(each.name))
    return [result.error_code, result.resource_type, result.resource_name, shown]


async def settled(wire: Wire, topic: str, name: str, value: str) -> Any:
    """All configs, once this one has the value: Kafka answers before a change is in effect."""
    for _ in range(100):
        found = await configs_of(wire, topic)
        if any((each.name, each.value) == (name, value) for each in found[3]):
            break
        await asyncio.sleep(0.05)
    return found


async def configuring(wire: Wire, topic: str) -> Answers:
    await create(wire, topic, retention_ms="1000000")
    for version in range(1, 5):
        yield f"v{version}", await configs_of(wire, topic, version=version)
    yield "without synonyms", await configs_of(wire, topic, synonyms=False)
    yield "unknown topic", await configs_of(wire, topic + "-not")
    yield "no key", await configs_of(wire, topic, keys=("no.such",))

    async def alter(
        *changes: tuple[str, int, str | None], name: str = topic, validate_only: bool = False
    ) -> Any:
        configs = [{"name": k, "config_operation": op, "value": v} for k, op, v in changes]
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        return await wire.call(
            "incremental_alter_configs", 1, resources=[resource], validate_only=validate_only
        )

    yield (
        "set",
        await alter(("retention.bytes", SET, "5000"), ("cleanup.policy", APPEND, "compact")),
    )
    yield "after set", await settled(wire, topic, "retention.bytes", "5000")
    yield "subtract", await alter(("cleanup.policy", SUBTRACT, "delete"))
    yield "after subtract", await settled(wire, topic, "cleanup.policy", "compact")
    yield "delete", await alter(("retention.ms", DELETE, None))
    yield "after delete", await settled(wire, topic, "retention.ms", "604800000")
    yield "only validated", await alter(("retention.ms", SET, "7"), validate_only=True)
    yield "bad value", await alter(("retention.ms", SET, "x"))
    yield "unknown name", await alter(("no.such", SET, "1"))
    yield "append to a number", await alter(("retention.ms", APPEND, "1"))
    yield "altering an unknown topic", await alter(("retention.ms", SET, "1"), name=topic + "-not")
    resource = {
        "resource_type": TOPIC,
        "resource_name": topic,
        "configs": [{"name": "retention.ms", "value": "777777"}],
    }
    for version in range(3):
        yield (
            f"replace v{version}",
            await wire.call("alter_configs", version, resources=[resource], validate_only=False),
        )
    yield "after replace", await settled(wire, topic, "retention.ms", "777777")


SCENES = (configuring,)
