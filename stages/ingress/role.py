"""One ingress process: a member of the group that reads `hr.requests`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pipeline import logs
from pipeline.log import Outgoing, Record
from pipeline.member import Member
from pipeline.presence import Presence
from pipeline.runner import Runner
from pipeline.stage import DeadLetter
from pipeline.table import Table
from schemas.codec import decode
from schemas.errors import Refusal
from schemas.models import Model

from . import outcomes
from .draft import Step, choose_lane, set_deadline
from .prompt import budget, find_model, tokenise
from .stage import Ingress
from .trail import Trail
from .uses import Uses
from .vocabularies import Languages


def steps(member: Member, models: Table[Model], languages: Languages) -> Sequence[Step]:
    """What every request passes, in this order."""
    settings = member.settings.ingress
    return (
        choose_lane,
        set_deadline(settings),
        find_model(models.items, languages),
        tokenise,
        budget(settings.output_limit),
    )


async def run(member: Member) -> None:
    """Until drained. Raises what ends a process: it is started again and goes on where it was."""
    models = Table(member.log, member.topics.models, lambda value: decode(value, Model))
    trail = Trail(member.log, member.topics)
    languages = Languages(Path(member.settings.home), member.clock.ms)
    stage = Ingress(
        member.topics,
        Uses(trail),
        steps(member, models, languages),
        body_limit=member.settings.edge.body_limit,
    )

    def end(record: Record, dead: DeadLetter) -> Sequence[Outgoing]:
        output = outcomes.of_dead_letter(record, dead, member.clock.ms())
        return [outcomes.outgoing(output, member.topics, None)]

    presence = Presence(member, await member.log.writer("status"))
    runner = Runner(
        member,
        stage,
        topics=[member.topics.requests],
        group=member.topics.group("ingress"),
        kind=lambda record: record.value or b"",
        concurrency=member.settings.ingress.concurrency,
        on_dead=end,
    )
    member.missing["models"] = "reading the model registry"
    member.missing.pop("start", None)
    async with asyncio.TaskGroup() as tasks:
        table = tasks.create_task(models.run())
        beat = tasks.create_task(presence.run())
        follow = tasks.create_task(trail.run())
        await models.until_caught_up()
        _warm(models, languages)
        member.missing.pop("models")
        await runner.run()
        await presence.leave()
        for task in (table, beat, follow):
            task.cancel()


def _warm(models: Table[Model], languages: Languages) -> None:
    """Read the vocabularies before the first request waits for one."""
    for model in models.items.values():
        try:
            languages.of(model)
        except Refusal as refusal:
            logs.warn("vocabulary", model=model.name, error=refusal)
