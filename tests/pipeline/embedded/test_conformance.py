"""Request by request, field by field, the answers are those of Apache Kafka."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import pytest

from tests.pipeline.brokers import ApacheKafka, EmbeddedBroker
from tests.pipeline.embedded import (
    scenes_configs,
    scenes_groups,
    scenes_offsets,
    scenes_produce,
    scenes_read,
    scenes_topics,
)
from tests.pipeline.embedded.plain import Plain, differences
from tests.pipeline.embedded.wire import Wire

# Differences that are wanted: what they look like, and why.
WANTED = {
    r"produce_\w+/.*\.log_start_offset: -1, Kafka 0": (
        "a batch is checked before its partition is touched; no client reads the start of the log"
        " from a refusal"
    ),
    r"idempotent/repeat.*\.log_append_time: None": (
        "of a repeat Kafka reports the time of the first batch, though the producer set it"
    ),
}

MODULES = (
    scenes_produce,
    scenes_read,
    scenes_topics,
    scenes_configs,
    scenes_groups,
    scenes_offsets,
)
SCENES = [scene for module in MODULES for scene in module.SCENES]
_numbers = itertools.count()


async def played(scene: Any, bootstrap: str, name: str) -> list[tuple[str, Any]]:
    """The scene's answers, made comparable."""
    plain = Plain()
    async with asyncio.timeout(60), await Wire.connect(bootstrap) as wire:
        return [(label, plain(answer)) async for label, answer in scene(wire, name)]


@pytest.mark.kafka
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_answers_are_those_of_apache_kafka(
    scene: Any, embedded_broker: EmbeddedBroker, apache_kafka: ApacheKafka
) -> None:
    name = f"{scene.__name__}-{next(_numbers)}"
    ours, theirs = await asyncio.gather(
        played(scene, embedded_broker.bootstrap, name), played(scene, apache_kafka.bootstrap, name)
    )
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    found = [
        f"{scene.__name__}/{label}{line}"
        for (label, our), (_, their) in zip(ours, theirs, strict=True)
        for line in differences(our, their)
    ]
    unwanted = [line for line in found if not any(re.match(each, line) for each in WANTED)]
    assert not unwanted, "\n".join(unwanted)
