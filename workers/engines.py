"""Which model this worker serves, and the engine that speaks for it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from pipeline import logs
from pipeline.member import Member
from pipeline.table import Table
from schemas.models import Model
from workers.job import Engine
from workers.null import NullEngine

LOOK = 0.2  # s between looks at a registry that lacks our model


async def choose_model(member: Member, models: Table[Model]) -> Model | None:
    """The model of the settings, or the only one there is; waits, and says so, until it is there.

    None: the member drained first.
    """
    await models.until_caught_up()
    while not member.draining.is_set():
        why = _unfit(member, models.items)
        if why is None:
            member.missing.pop("model", None)
            name = member.settings.model or next(iter(models.items))
            return models.items[name]
        if member.missing.get("model") != why:
            member.missing["model"] = why
            logs.warn("model", why=why)
        await asyncio.sleep(LOOK)
    return None


def _unfit(member: Member, known: dict[str, Model]) -> str | None:
    """Why no model can be chosen, and what to do; None: one can."""
    name, names = member.settings.model, ", ".join(sorted(known)) or "none"
    if not name and not known:
        return "no model is registered: headrace models pull NAME"
    if not name and len(known) > 1:
        return f"{len(known)} models are registered ({names}): name one, --model or HEADRACE_MODEL"
    if name and name not in known:
        return f"model {name} is not registered ({names}): headrace models pull {name}"
    model = known[name or next(iter(known))]
    if model.format == "null" and member.settings.worker.engine != "null":
        return f"model {model.name} has no weights: start the worker with --engine null"
    return None


def engine_of(member: Member, model: Model) -> Callable[[], Engine]:
    """Builds the engine, warm; called in the thread that will run it."""
    settings, clock = member.settings.worker, member.clock

    def null() -> Engine:
        return NullEngine(
            settings.null_rate, settings.null_vary == "attempt", settings.slots, clock=clock
        )

    def torch() -> Engine:
        from workers.runtime import build_engine  # torch is not loaded for the null engine

        path = Path(member.settings.home) / "models" / model.file
        sha256 = model.sha256 or None
        return build_engine(path, settings, clock=clock, plan=model.plan, sha256=sha256)

    return null if settings.engine == "null" else torch
