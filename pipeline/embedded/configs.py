"""Topic configs: Kafka's names, types and defaults; what they come to for one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.embedded.batch import Limits
from pipeline.embedded.errors import Code, Refused

_MAX = 2**63 - 1
_DAY_MS = 86_400_000
_MOST_DECOMPRESSED = 64 << 20  # of one batch: a small batch must not fill the memory


class Type:
    """Config types as DescribeConfigs numbers them."""

    BOOLEAN, STRING, INT, _SHORT, LONG, DOUBLE, LIST = range(1, 8)


class Config(NamedTuple):
    """One topic config: `choices` for strings and lists, `least` for numbers."""

    type: int
    default: str
    choices: tuple[str, ...] = ()
    least: float = 0
    broker_name: str | None = None  # the broker's config that gives the default


# The ones not read in `TopicConfig.of` are about segments, replicas and tiers, which this broker
# does not have. They are kept and shown, so that topics declared for Apache Kafka can be made here.
CONFIGS: dict[str, Config] = {
    "cleanup.policy": Config(
        Type.LIST, "delete", ("compact", "delete"), broker_name="log.cleanup.policy"
    ),
    "compression.type": Config(
        Type.STRING, "producer", ("producer",), broker_name="compression.type"
    ),
    "delete.retention.ms": Config(
        Type.LONG, str(_DAY_MS), broker_name="log.cleaner.delete.retention.ms"
    ),
    "file.delete.delay.ms": Config(Type.LONG, "60000", broker_name="log.segment.delete.delay.ms"),
    "flush.messages": Config(
        Type.LONG, str(_MAX), least=1, broker_name="log.flush.interval.messages"
    ),
    "flush.ms": Config(Type.LONG, str(_MAX)),
    "index.interval.bytes": Config(Type.INT, "4096", broker_name="log.index.interval.bytes"),
    "max.compaction.lag.ms": Config(
        Type.LONG, str(_MAX), least=1, broker_name="log.cleaner.max.compaction.lag.ms"
    ),
    "max.decompressed.message.bytes": Config(
        Type.INT,
        str(_MOST_DECOMPRESSED),
        least=1,
        broker_name="max.decompressed.message.bytes",
    ),
    "max.message.bytes": Config(Type.INT, "1048588", broker_name="message.max.bytes"),
    "message.timestamp.after.max.ms": Config(
        Type.LONG, "3600000", broker_name="log.message.timestamp.after.max.ms"
    ),
    "message.timestamp.before.max.ms": Config(
        Type.LONG, str(_MAX), broker_name="log.message.timestamp.before.max.ms"
    ),
    "message.timestamp.type": Config(
        Type.STRING,
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        broker_name="log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": Config(
        Type.DOUBLE, "0.5", broker_name="log.cleaner.min.cleanable.ratio"
    ),
    "min.compaction.lag.ms": Config(
        Type.LONG, "0", broker_name="log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": Config(Type.INT, "1", least=1, broker_name="min.insync.replicas"),
    "preallocate": Config(Type.BOOLEAN, "false", broker_name="log.preallocate"),
    "retention.bytes": Config(Type.LONG, "-1", least=-1, broker_name="log.retention.bytes"),
    "retention.ms": Config(Type.LONG, str(7 * _DAY_MS), least=-1),
    "segment.bytes": Config(Type.INT, str(1 << 30), least=14, broker_name="log.segment.bytes"),
    "segment.index.bytes": Config(
        Type.INT, str(10 << 20), least=4, broker_name="log.index.size.max.bytes"
    ),
    "segment.jitter.ms": Config(Type.LONG, "0"),
    "segment.ms": Config(Type.LONG, str(7 * _DAY_MS), least=1),
    "unclean.leader.election.enable": Config(
        Type.BOOLEAN, "false", broker_name="unclean.leader.election.enable"
    ),
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What the configs of one topic come to. Times in ms, sizes in bytes, -1 for no limit."""

    overrides: Mapping[str, str]
    limits: Limits
    delete: bool
    compact: bool
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    dirty_ratio: float
    min_insync_replicas: int

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> TopicConfig:
        """Raises `Refused` for a name or a value that Kafka would refuse, too."""
        for name, value in overrides.items():
            _check(name, value)
        value_of = {name: overrides.get(name, config.default) for name, config in CONFIGS.items()}
        policies = {policy.strip() for policy in value_of["cleanup.policy"].split(",")}
        return cls(
            overrides=dict(overrides),
            limits=Limits(
                max_bytes=int(value_of["max.message.bytes"]),
                max_decompressed_bytes=int(value_of["max.decompressed.message.bytes"]),
                timestamp_before_ms=int(value_of["message.timestamp.before.max.ms"]),
                timestamp_after_ms=int(value_of["message.timestamp.after.max.ms"]),
                append_time=value_of["message.timestamp.type"] == "LogAppendTime",
                keys_required="compact" in policies,
            ),
            delete="delete" in policies,
            compact="compact" in policies,
            retention_ms=int(value_of["retention.ms"]),
            retention_bytes=int(value_of["retention.bytes"]),
            delete_retention_ms=int(value_of["delete.retention.ms"]),
            min_compaction_lag_ms=int(value_of["min.compaction.lag.ms"]),
            dirty_ratio=float(value_of["min.cleanable.dirty.ratio"]),
            min_insync_replicas=int(value_of["min.insync.replicas"]),
        )


def _check(name: str, value: str | None) -> None:
    config = CONFIGS.get(name)
    if config is None:
        raise Refused(Code.invalid_config, f"Unknown topic config name: {name}")
    if value is None:
        raise Refused(Code.invalid_config, f"Null value not supported for topic configs: {name}")
    if not _fits(config, value):
        wanted = f"one of {', '.join(config.choices)}" if config.choices else "a number in range"
        raise Refused(
            Code.invalid_config, f"Invalid value {value} for configuration {name}: not {wanted}"
        )


def _fits(config: Config, value: str) -> bool:
    if config.type == Type.LIST:
        return all(item.strip() in config.choices for item in value.split(","))
    if config.type == Type.STRING:
        return value in config.choices
    if config.type == Type.BOOLEAN:
        return value in ("true", "false")
    try:
        if config.type == Type.DOUBLE:
            return config.least <= float(value) <= 1
        most = 2**31 - 1 if config.type == Type.INT else _MAX
        return config.least <= int(value) <= most
    except ValueError:
        return False
