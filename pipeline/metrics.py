"""Every metric of every role, by fixed names, on a registry of our own.

Label values that come from outside (tenants, models, topics) go through `capped`: beyond its limit they
are `other`, so that nobody can grow a process by inventing names.
"""

from functools import cache
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

T = TypeVar("T", Counter, Gauge, Histogram)

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Buckets of OpenTelemetry's GenAI conventions.
DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
TOKENS = tuple(4.0**power for power in range(11))  # 1 … 1,048,576

GEN_AI = ("gen_ai_operation_name", "gen_ai_request_model")


def _kept(metric: T) -> T:
    """Finds a child by its values at once; the client takes a lock and makes strings each time.

    No metric ever drops a child, and `capped` bounds how many there are.
    """
    metric.labels = cache(metric.labels)  # type: ignore[method-assign]
    return metric


def _counter(name: str, text: str, *labels: str) -> Counter:
    return _kept(Counter(name, text, labels, registry=REGISTRY))


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return _kept(Gauge(name, text, labels, registry=REGISTRY))


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return _kept(Histogram(name, text, labels, buckets=buckets, registry=REGISTRY))


# What a model server is asked about, by the names of the GenAI conventions.
request_duration = _histogram(
    "gen_ai_server_request_duration_seconds", "Acceptance to outcome.", DURATION, *GEN_AI
)
time_to_first_token = _histogram(
    "gen_ai_server_time_to_first_token_seconds", "Acceptance to first token.", FIRST_TOKEN, *GEN_AI
)
time_per_output_token = _histogram(
    "gen_ai_server_time_per_output_token_seconds",
    "Between tokens after the first.",
    PER_TOKEN,
    *GEN_AI,
)
token_usage = _histogram(
    "gen_ai_client_token_usage", "Tokens of a request.", TOKENS, *GEN_AI, "gen_ai_token_type"
)

# Requests.
requests_running = _gauge("headrace_requests_running", "Requests on this device.")
requests_waiting = _gauge("headrace_requests_waiting", "Ready and not yet leased.", "lane")
requests_total = _counter(
    "headrace_requests", "Requests that entered, by tenant.", "tenant", "lane"
)
outcomes = _counter("headrace_outcomes", "Outcomes written.", "outcome", "lane")
refusals = _counter("headrace_refusals", "Refusals, by reason code.", "code")
streams_open = _gauge("headrace_streams_open", "Streams that an edge is writing.")

# The device.
batch_tokens = _gauge("headrace_batch_tokens", "Tokens in the last step.")
batch_occupancy = _gauge("headrace_batch_occupancy_max", "Most sequences that one step held.")
kv_blocks = _gauge("headrace_kv_blocks", "KV blocks: free, used, cached.", "state")
tokens_generated = _counter("headrace_tokens_generated", "Tokens computed on this device.")
preemptions = _counter("headrace_preemptions", "Sequences put back for want of blocks.")
cache_hit_tokens = _counter("headrace_cache_hit_tokens", "Prompt tokens taken from cached blocks.")

# The protocol.
leases = _counter("headrace_leases", "Leases written, by reason.", "why")
void_records = _counter("headrace_void_records", "Records that count for nothing.", "kind")
deaths = _counter("headrace_deaths", "Members declared dead.", "role")

# The floor.
stage_lag = _gauge("headrace_stage_lag", "Records behind the end.", "topic", "lane")
stage_records = _counter(
    "headrace_stage_records", "Records that a stage finished.", "stage", "verdict"
)
stage_seconds = _histogram("headrace_stage_seconds", "A stage's own work.", DURATION, "stage")
records_in_hand = _gauge("headrace_records_in_hand", "Read and not complete.", "stage")
records_parked = _gauge("headrace_records_parked", "Waiting for another try.", "stage")
oldest_record = _gauge("headrace_oldest_record_seconds", "Age of the oldest in hand.", "stage")
dead_letters = _counter("headrace_dead_letters", "Records sent to hr.dlq.*.", "stage", "reason")
unreadable = _counter("headrace_unreadable", "Records counted and skipped.", "topic")
offset_gaps = _counter("headrace_offset_gaps", "Records lost before they were read.", "topic")
rebalances = _counter("headrace_rebalances", "Assignments of a group to this process.", "group")
commit_failures = _counter("headrace_commit_failures", "Commits that did not go through.", "group")
send_seconds = _histogram("headrace_send_seconds", "From send to ack.", FIRST_TOKEN, "stage")
loop_lag = _gauge("headrace_loop_lag_seconds", "How late the event loop runs its timers.")

LABEL_LIMIT = 64  # values of one label that come from outside
_known: dict[str, set[str]] = {}


def capped(label: str, value: str, limit: int = LABEL_LIMIT) -> str:
    """`value`, or `other` once `limit` different ones of this label were seen."""
    known = _known.setdefault(label, set())
    if value in known:
        return value
    if len(known) >= limit:
        return "other"
    known.add(value)
    return value


def render() -> bytes:
    """Everything in Prometheus' text format."""
    text: bytes = generate_latest(REGISTRY)
    return text
