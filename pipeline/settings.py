"""Every setting, typed. Flags over environment (`HEADRACE_SECTION_KEY`) over `headrace.toml`."""

import msgspec


class Section(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings that belong together; an unknown key is an error that names it."""


class KafkaSettings(Section):
    bootstrap: str = "127.0.0.1:19092"
    security_protocol: str = "PLAINTEXT"  # SSL | SASL_PLAINTEXT | SASL_SSL
    sasl_mechanism: str = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = ""
    ssl_cafile: str = ""
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    static_members: bool = False  # the supervisor gives every role a stable group_instance_id


class TopicSettings(Section):
    prefix: str = "hr"
    replication: int = 1
    requests_partitions: int = 12
    ledger_partitions: int = 12
    work_partitions: int = 64
    tokens_partitions: int = 32
    tokens_retention_ms: int = 6 * 3_600_000
    requests_retention_ms: int = 7 * 86_400_000
    results_retention_ms: int = 30 * 86_400_000


class StoreSettings(Section):
    url: str = ""  # unix://… or redis://…; empty: no store, keyed requests get 503


class EdgeSettings(Section):
    host: str = "127.0.0.1"
    port: int = 8080
    header_limit: int = 32_768  # bytes
    body_limit: int = 262_144  # bytes; beyond it 413 until a claim check exists
    header_timeout: float = 10.0  # s
    body_timeout: float = 30.0  # s
    disconnect_grace: float = 15.0  # s
    verdict_wait: float = 2.0  # s until 200 goes out without `admitted`
    publish_wait: float = 2.0  # s until an unknown ack becomes 503 and a cancel
    ping: float = 10.0  # s between comment pings
    drain_gold: float = 5.0  # s of queue that a lane may hold
    drain_silver: float = 30.0
    drain_bronze: float = 600.0
    stream_buffer: int = 65_536  # bytes a slow reader may hold at the edge
    scan_budget: float = 5.0  # s that a look-up without a hint may read


class IngressSettings(Section):
    concurrency: int = 32
    deadline: float = 3600.0  # s, default of gold and silver
    deadline_bronze: float = 86_400.0
    deadline_limit: float = 86_400.0
    output_limit: int = 921_600  # bytes (900 KiB): an output must fit into one record


class OrchestrationSettings(Section):
    weight_gold: int = 8  # shares of the lanes, by deficit round robin
    weight_silver: int = 4
    weight_bronze: int = 1
    floor: float = 0.05  # share that the lowest lane with work gets at least
    parked: int = 256  # ready records of a model without a live worker, in memory
    dead_after: float = 8.0  # s of caught-up silence
    resend_limit: int = 3
    refuse_late: bool = True  # refuse when now + expected decode > deadline


class WorkerSettings(Section):
    engine: str = "torch"
    plan: str = ""  # empty: as the registry says
    slots: int = 64
    block_size: int = 16  # tokens
    kv_bytes: int = 1 << 30
    batch_tokens: int = 0  # token budget of a step; 0: what suits the device
    threads: int = 0  # 0: what affinity and quota allow
    prefix_cache: bool = True
    speculate: bool = True
    heartbeat: float = 1.0  # s
    pause_after: float = 4.0  # s without an acked status
    run_limit: float = 7200.0  # s, the longest run
    null_rate: float = 0.0  # tokens/s of the null engine; 0 = unlimited
    null_vary: str = ""  # "attempt": its tokens depend on the attempt too
    device: str = "cpu"


class DeliverySettings(Section):
    concurrency: int = 64


class RunnerSettings(Section):
    tries: int = 3
    retry_delay: float = 1.0  # s, constant
    span: int = 16_000  # offsets in flight per partition
    commit_interval: float = 0.5  # s
    drain_limit: float = 25.0  # s


class UpSettings(Section):
    """How many of each role `headrace up` starts."""

    edges: int = 1
    ingress: int = 1
    orchestration: int = 1
    workers: int = 1
    delivery: int = 1
    broker_port: int = 19092
    fsync: bool = False  # the embedded broker survives power loss too, at a price


class Settings(Section):
    home: str = "./.headrace"
    host: str = "127.0.0.1"  # of every process's health endpoint
    health_port: int = 0  # of a role's health endpoint; 0: any free one
    model: str = ""  # which one a worker loads; empty: the only one registered
    kafka: KafkaSettings = msgspec.field(default_factory=KafkaSettings)
    topics: TopicSettings = msgspec.field(default_factory=TopicSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    edge: EdgeSettings = msgspec.field(default_factory=EdgeSettings)
    ingress: IngressSettings = msgspec.field(default_factory=IngressSettings)
    orchestration: OrchestrationSettings = msgspec.field(default_factory=OrchestrationSettings)
    worker: WorkerSettings = msgspec.field(default_factory=WorkerSettings)
    delivery: DeliverySettings = msgspec.field(default_factory=DeliverySettings)
    runner: RunnerSettings = msgspec.field(default_factory=RunnerSettings)
    up: UpSettings = msgspec.field(default_factory=UpSettings)
    keys: dict[str, str] = {}  # SHA-256 of a key → tenant; none: everybody is `default`
