"""Topics are declared: made at start where they are missing, and verified where they exist."""

from collections.abc import Mapping, Sequence

from .log import Log, LogError, TopicSpec
from .topics import Topics

# what guarantees rest on; other configs only tune, and an operator may change them
VERIFIED = (
    "cleanup.policy",
    "retention.ms",
    "message.timestamp.type",
    "max.message.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)


class TopicMismatch(LogError):
    """Topics exist and are not as declared; names each and the difference."""


async def declare(log: Log, topics: Topics) -> None:
    """Raises TopicMismatch, NotAuthorized naming the topics, LogUnavailable."""
    await declare_specs(log, topics.all())


async def declare_specs(log: Log, specs: Sequence[TopicSpec]) -> None:
    await log.admin.create_topics(specs)
    found = await log.admin.describe_topics([spec.name for spec in specs])
    differences = [line for spec in specs for line in _compare(spec, found)]
    if differences:
        raise TopicMismatch(
            "topics are not as declared; change the topics, or the settings [topics], or take another "
            "prefix: " + "; ".join(differences)
        )


def _compare(spec: TopicSpec, described: Mapping[str, TopicSpec]) -> list[str]:
    found = described.get(spec.name)
    if found is None:
        return [f"{spec.name} does not exist"]
    lines = []
    if found.partitions != spec.partitions:
        lines.append(f"{spec.name} has {found.partitions} partitions, declared {spec.partitions}")
    if found.replication < spec.replication:
        lines.append(
            f"{spec.name} has replication {found.replication}, declared {spec.replication}"
        )
    for key in VERIFIED:
        declared = spec.configs.get(key)
        if declared is not None and found.configs.get(key) != declared:
            lines.append(f"{spec.name} has {key}={found.configs.get(key)}, declared {declared}")
    return lines
