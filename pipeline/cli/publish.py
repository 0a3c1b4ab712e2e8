"""What must be in the log before a role starts: the topics, and this installation's models."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.clock import WallClock
from pipeline.load_settings import configured
from pipeline.log import Log, LogError, Outgoing
from pipeline.supervisor.home import Home
from pipeline.supervisor.plan import Plan
from pipeline.supervisor.supervisor import StartError
from pipeline.topics import Topics
from schemas.codec import encode, headers_of, tag_of
from schemas.models import Model

from .options import settings


async def prepare(plan: Plan, bootstrap: str) -> None:
    """Declare the topics and publish the models. Raises StartError naming the broker."""
    from .models import null_model, read_registry

    registry: dict[str, Model | None] = dict(read_registry(plan.home.models))
    if plan.environment["HEADRACE_WORKER_ENGINE"] == "null":
        name = plan.environment["HEADRACE_MODEL"]
        registry[name] = null_model(name, time.time_ns() // 1_000_000)
    try:
        await publish(bootstrap, registry)
    except LogError as fault:
        raise StartError(f"Kafka at {bootstrap}: {fault}") from fault


def running_broker() -> str | None:
    """The broker that a changed registry must reach now; None when the next start is early enough."""
    loaded = settings()
    state = Home(Path(loaded.home)).read_state()
    if state is not None and state["kafka"]:
        return str(state["kafka"])
    return loaded.kafka.bootstrap if configured("kafka.bootstrap") else None


async def publish(bootstrap: str, registry: Mapping[str, Model | None]) -> None:
    """One record a model, None for one that is gone; saying the same again is harmless."""
    from pipeline.declare import declare
    from pipeline.kafka import connect

    loaded = settings(**{"kafka.bootstrap": bootstrap})
    log = await connect(loaded.kafka, WallClock(), client_id="registry")
    try:
        topics = Topics.of(loaded)
        await declare(log, topics)
        await write_models(log, topics, registry)
    finally:
        await log.close()


async def write_models(log: Log, topics: Topics, registry: Mapping[str, Model | None]) -> None:
    writer = await log.writer("models")
    for name, model in registry.items():
        value: Any = None if model is None else encode(model)
        headers = headers_of(tag_of(Model))
        writer.send(Outgoing(topics.models, value, key=name.encode(), headers=headers))
    await writer.flush()
    await writer.close()
