"""The whole pipeline on both brokers; each installation is started once and shared.

They end with this folder's tests: idle as they are, they would take from the tests of the others.

| fixture | engine | what is special |
|---|---|---|
| `headrace` | the real model | a short grace for clients that leave |
| `fleet` | null, 20 tokens/s | two edges, two orchestrators, two workers: for kills, resumes and drains |
| `narrow` | null, 20 tokens/s | one worker with two slots, keys of two tenants, traces to `sink` |
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.flow.installation import Installation, installation
from tests.flow.otlp_sink import Sink, otlp_sink
from tests.flow.tenants import DIGESTS

BROKERS = ["embedded", "apache"]
RATE = "20"  # tokens/s of the null engine: slow enough to be met half-way
SMALL_TOPICS = {
    "HEADRACE_TOPICS_REQUESTS_PARTITIONS": "3",
    "HEADRACE_TOPICS_LEDGER_PARTITIONS": "3",
    "HEADRACE_TOPICS_WORK_PARTITIONS": "4",
    "HEADRACE_TOPICS_TOKENS_PARTITIONS": "8",
}


def started(
    request: pytest.FixtureRequest, factory: pytest.TempPathFactory, name: str, **environment: str
) -> Any:
    """An installation on the broker that the fixture's parameter names."""
    cluster = None if request.param == "embedded" else request.getfixturevalue("apache_kafka")
    home = factory.mktemp(f"{name}-{request.param}")
    return installation(home, request.param, cluster, **environment)


@pytest.fixture(scope="package", params=BROKERS)
def headrace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with started(
        request, tmp_path_factory, "model", HEADRACE_EDGE_DISCONNECT_GRACE="2"
    ) as made:  # fmt: skip
        yield made


@pytest.fixture(scope="package", params=BROKERS)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with started(
        request, tmp_path_factory, "fleet", **SMALL_TOPICS,
        HEADRACE_TOPICS_PREFIX="fleet", HEADRACE_WORKER_ENGINE="null", HEADRACE_NULL_RATE=RATE,
        HEADRACE_UP_EDGES="2", HEADRACE_UP_ORCHESTRATION="2", HEADRACE_UP_WORKERS="2",
    ) as made:  # fmt: skip
        yield made


@pytest.fixture(scope="package")
def sink() -> Iterator[Sink]:
    with otlp_sink() as made:
        yield made


@pytest.fixture(scope="package", params=BROKERS)
def narrow(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sink: Sink
) -> Iterator[Installation]:
    with started(
        request, tmp_path_factory, "narrow", **SMALL_TOPICS,
        HEADRACE_TOPICS_PREFIX="narrow", HEADRACE_WORKER_ENGINE="null", HEADRACE_NULL_RATE=RATE,
        HEADRACE_WORKER_SLOTS="2", HEADRACE_KEYS=json.dumps(DIGESTS),
        OTEL_EXPORTER_OTLP_ENDPOINT=sink.url, OTEL_BSP_SCHEDULE_DELAY="200",
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def client(headrace: Installation) -> Iterator[OpenAI]:
    """The official client, unmodified."""
    with OpenAI(
        base_url=f"{headrace.url()}/v1", api_key="none", max_retries=0, timeout=120
    ) as made:
        yield made
