"""Every setting, typed, with its range. Flags over environment (`HEADRACE_SECTION_KEY`) over `headrace.toml`.

Ranges hold where settings are loaded; they keep out what cannot work, not what is unwise.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

HOUR = 3_600_000  # ms
DAY = 24 * HOUR

Port = Annotated[int, Meta(ge=0, le=65_535)]  # 0: any free one
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Partitions = Annotated[int, Meta(ge=1, le=10_000)]
Processes = Annotated[int, Meta(ge=0, le=256)]
Retention = Annotated[int, Meta(ge=60_000, le=10_000 * DAY)]  # ms
Seconds = Annotated[float, Meta(ge=0.01, le=2_592_000)]  # up to 30 days
Pause = Annotated[float, Meta(ge=0, le=2_592_000)]  # s, where 0 has a meaning
RecordBytes = Annotated[int, Meta(ge=1_024, le=1_000_000)]  # a record of 1 MiB has to hold it
Share = Annotated[float, Meta(ge=0, le=1)]
Prefix = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,100}$")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Tenant = Annotated[str, Meta(min_length=1, max_length=128)]


class Section(Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings that belong together; an unknown key is an error that names it."""


class KafkaSettings(Section):
    bootstrap: str = "127.0.0.1:19092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = ""
    ssl_cafile: str = ""
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    static_members: bool = False  # the supervisor gives every role a stable group_instance_id


class TopicSettings(Section):
    prefix: Prefix = "hr"
    replication: Annotated[int, Meta(ge=1, le=32_767)] = 1
    requests_partitions: Partitions = 12
    ledger_partitions: Partitions = 12
    work_partitions: Partitions = 64
    tokens_partitions: Partitions = 32
    tokens_retention_ms: Retention = 6 * HOUR
    requests_retention_ms: Retention = 7 * DAY
    results_retention_ms: Retention = 30 * DAY


class StoreSettings(Section):
    url: str = ""  # unix://… or redis://…; empty: no store, keyed requests get 503


class EdgeSettings(Section):
    host: str = "127.0.0.1"
    port: Port = 8080
    header_limit: Annotated[int, Meta(ge=1_024, le=1_048_576)] = 32_768  # bytes
    body_limit: RecordBytes = 262_144  # bytes; beyond it 413 until a claim check exists
    header_timeout: Seconds = 10.0  # s
    body_timeout: Seconds = 30.0  # s
    disconnect_grace: Pause = 15.0  # s
    verdict_wait: Seconds = 2.0  # s until 200 goes out without `admitted`
    publish_wait: Seconds = 2.0  # s until an unknown ack becomes 503 and a cancel
    ping: Seconds = 10.0  # s between comment pings
    drain_gold: Seconds = 5.0  # s of queue that a lane may hold
    drain_silver: Seconds = 30.0
    drain_bronze: Seconds = 600.0
    stream_buffer: Annotated[int, Meta(ge=4_096, le=1 << 30)] = (
        65_536  # bytes a slow reader may hold at the edge
    )
    scan_budget: Seconds = 5.0  # s that a look-up without a hint may read


class IngressSettings(Section):
    concurrency: Count = 32
    deadline: Seconds = 3600.0  # s, default of gold and silver
    deadline_bronze: Seconds = 86_400.0
    deadline_limit: Seconds = 86_400.0
    output_limit: RecordBytes = 921_600  # bytes (900 KiB): an output must fit into one record


class OrchestrationSettings(Section):
    weight_gold: Count = 8  # shares of the lanes, by deficit round robin
    weight_silver: Count = 4
    weight_bronze: Count = 1
    floor: Share = 0.05  # share that the lowest lane with work gets at least
    parked: Count = 256  # ready records of a model without a live worker, in memory
    dead_after: Seconds = 8.0  # s of caught-up silence
    resend_limit: Count = 3
    refuse_late: bool = True  # refuse when now + expected decode > deadline


class WorkerSettings(Section):
    engine: Literal["torch", "null"] = "torch"
    plan: Literal["", "exact", "fast"] = ""  # empty: as the registry says
    slots: Annotated[int, Meta(ge=1, le=4_096)] = 64
    block_size: Annotated[int, Meta(ge=1, le=1_024)] = 16  # tokens
    kv_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 42)] = 1 << 30
    batch_tokens: Annotated[int, Meta(ge=0, le=1 << 20)] = (
        0  # token budget of a step; 0: what suits the device
    )
    threads: Annotated[int, Meta(ge=0, le=1_024)] = 0  # 0: what affinity and quota allow
    prefix_cache: bool = True
    speculate: bool = True
    heartbeat: Seconds = 1.0  # s
    pause_after: Seconds = 4.0  # s without an acked status
    run_limit: Seconds = 7200.0  # s, the longest run
    null_rate: Annotated[float, Meta(ge=0, le=1e9)] = (
        0.0  # tokens/s of the null engine; 0 = unlimited
    )
    null_vary: Literal["", "attempt"] = ""  # "attempt": its tokens depend on the attempt too
    device: str = "cpu"


class DeliverySettings(Section):
    concurrency: Count = 64


class RunnerSettings(Section):
    tries: Annotated[int, Meta(ge=1, le=100)] = 3
    retry_delay: Pause = 1.0  # s, constant
    span: Count = 16_000  # offsets in flight per partition
    commit_interval: Seconds = 0.5  # s
    drain_limit: Seconds = 25.0  # s


class UpSettings(Section):
    """How many of each role `headrace up` starts."""

    edges: Annotated[int, Meta(ge=1, le=256)] = 1
    ingress: Processes = 1
    orchestration: Processes = 1
    workers: Processes = 1
    delivery: Processes = 1
    broker_port: Port = 19092
    fsync: bool = False  # the embedded broker survives power loss too, at a price


class Settings(Section):
    home: str = "./.headrace"
    host: str = "127.0.0.1"  # of every process's health endpoint
    health_port: Port = 0  # of a role's health endpoint; 0: any free one
    model: str = ""  # which one a worker loads; empty: the only one registered
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    edge: EdgeSettings = field(default_factory=EdgeSettings)
    ingress: IngressSettings = field(default_factory=IngressSettings)
    orchestration: OrchestrationSettings = field(default_factory=OrchestrationSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    runner: RunnerSettings = field(default_factory=RunnerSettings)
    up: UpSettings = field(default_factory=UpSettings)
    keys: dict[Digest, Tenant] = {}  # SHA-256 of a key → tenant; none: everybody is `default`
