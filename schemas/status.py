"""`hr.status` (compacted): what every member is, how it is, and what it should be."""

import msgspec


class WorkerFigures(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    revision: str
    plan: str
    device_type: str  # what must be equal for the same answer: cpu-avx2, cuda-sm90, null
    engine: str = "torch"
    inbox: int  # partition of hr.work
    position: int  # of its inbox reader: what it has seen of its orders
    running: list[tuple[str, int]] = []  # (request id, attempt) it holds, waiting ones too
    credits: dict[str, int] = {}  # orchestrator epoch → total orders it may have sent
    slots: int = 0
    context: int = 0
    blocks_total: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    rate: float = 0.0  # tokens/s of one sequence, the best of late; 0: none was decoded yet
    step_age: float = 0.0  # seconds since the last step, with work in hand
    memory_used: float = 0.0  # share of device memory, 0–1
    paused: bool = False
    prefixes: list[str] = []  # affinity hashes it holds


class OrchestratorFigures(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[int] = []  # of hr.ledger that it owns
    caught_up: bool = False
    waiting: dict[str, int] = {}  # lane → ready and not yet leased, in its partitions
    rate: dict[str, float] = {}  # lane → requests/s finished or leased, moving average
    requests_lag: int = 0
    requests_ends: list[int] = []  # of each partition of hr.requests, when that lag was taken
    sampled: int = 0  # ms of the sample


class Status(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="status/1"):
    """Readers ignore a lower counter of the same epoch."""

    member: str
    role: str
    epoch: str
    counter: int
    time: int  # ms, the member's own clock
    state: str = "ready"  # starting | ready | paused | draining | stopped
    version: str = ""
    reads: list[str] = []  # tags it can read
    http: str | None = None
    slots: list[int] = []  # an edge's own slots of hr.tokens
    worker: WorkerFigures | None = None
    orchestrator: OrchestratorFigures | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="wanted/1"):
    """What a member should be; key `wanted/<member>`."""

    member: str
    state: str  # run | drain | throttle | quarantine
    why: str = ""
    by: str = ""


StatusRecord = Status | Wanted
