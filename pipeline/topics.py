"""Every topic: its key, partitions and retention. The map of the system.

Declared here once, created and verified at start; auto-creation is off.
"""

import re
from dataclasses import dataclass
from typing import Self

from .log import TopicSpec
from .settings import Settings

LANES = ("gold", "silver", "bronze")
STAGES = ("ingress", "orchestration", "worker", "delivery")  # each has a dead-letter topic

FORBIDDEN = re.compile(r"[^a-zA-Z0-9._-]")
TOPIC_LIMIT = 249  # characters of a topic's name

HOUR = 3_600_000  # ms
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Names and shapes under one prefix. The counts of `ledger` (= ready = results) and `tokens` are
    fixed for the life of a prefix: a request id says where its records are."""

    prefix: str = "hr"
    replication: int = 1
    requests_partitions: int = 12
    ledger_partitions: int = 12
    work_partitions: int = 64
    tokens_partitions: int = 32
    tokens_retention_ms: int = 6 * HOUR
    requests_retention_ms: int = 7 * DAY
    results_retention_ms: int = 30 * DAY

    @classmethod
    def of(cls, settings: Settings) -> Self:
        named = settings.topics
        return cls(**{name: getattr(named, name) for name in named.__struct_fields__})

    @property
    def requests(self) -> str:
        return f"{self.prefix}.requests"

    def ready(self, lane: str) -> str:
        return f"{self.prefix}.ready.{lane}"

    @property
    def work(self) -> str:
        return f"{self.prefix}.work"

    @property
    def tokens(self) -> str:
        return f"{self.prefix}.tokens"

    @property
    def ledger(self) -> str:
        return f"{self.prefix}.ledger"

    @property
    def results(self) -> str:
        return f"{self.prefix}.results"

    @property
    def status(self) -> str:
        return f"{self.prefix}.status"

    @property
    def models(self) -> str:
        return f"{self.prefix}.models"

    @property
    def control(self) -> str:
        return f"{self.prefix}.control"

    def waiting(self, model: str) -> str:
        """Where requests for a model without a worker wait; what a topic's name may not hold becomes
        `_`, and two models may share one: each record says its own."""
        return f"{self.prefix}.waiting.{FORBIDDEN.sub('_', model)}"[:TOPIC_LIMIT]

    def group(self, stage: str) -> str:
        """A stage's consumer group: of this prefix alone, as its topics are."""
        return f"{self.prefix}.{stage}"

    def dead(self, stage: str) -> str:
        return f"{self.prefix}.dlq.{stage}"

    def waiting_spec(self, model: str) -> TopicSpec:
        return self._spec(self.waiting(model), self.ledger_partitions, self.requests_retention_ms)

    def dead_spec(self, stage: str) -> TopicSpec:
        # a full record and its reason must fit
        return self._spec(self.dead(stage), 1, 30 * DAY, max_message_bytes=str(2 * 1_048_576))

    def _spec(self, name: str, partitions: int, retention_ms: int, **configs: str) -> TopicSpec:
        settings = {"cleanup.policy": "delete", "retention.ms": str(retention_ms)}
        settings.update({key.replace("_", "."): value for key, value in configs.items()})
        return self._durable(TopicSpec(name, partitions, self.replication, settings))

    def _table(self, name: str) -> TopicSpec:
        # small segments and a low dirty ratio: a restart replays the table, so keep it short
        return self._durable(
            TopicSpec(
                name,
                1,
                self.replication,
                {
                    "cleanup.policy": "compact",
                    "min.cleanable.dirty.ratio": "0.1",
                    "segment.ms": str(HOUR // 6),
                },
            )
        )

    def _durable(self, spec: TopicSpec) -> TopicSpec:
        if spec.replication < 3:
            return spec
        safe = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
        return spec._replace(configs={**spec.configs, **safe})

    def all(self) -> list[TopicSpec]:
        """Every topic that exists from the start (`waiting.*` are made at first need)."""
        stamped = {"message_timestamp_type": "LogAppendTime"}
        week = self.requests_retention_ms
        return [
            self._spec(self.requests, self.requests_partitions, week, **stamped),
            *(self._spec(self.ready(lane), self.ledger_partitions, week) for lane in LANES),
            self._spec(self.work, self.work_partitions, HOUR),
            self._spec(
                self.tokens,
                self.tokens_partitions,
                self.tokens_retention_ms,
                segment_ms=str(HOUR // 6),  # retention works by segment
                **stamped,
            ),
            self._spec(self.ledger, self.ledger_partitions, week, **stamped),
            self._spec(self.results, self.ledger_partitions, self.results_retention_ms, **stamped),
            self._table(self.status),
            self._table(self.models),
            self._spec(self.control, 1, HOUR),
            *(self.dead_spec(stage) for stage in STAGES),
        ]
