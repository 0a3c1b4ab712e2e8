"""Services that tests of every folder share: each starts once a session, when first asked for."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.pipeline import brokers, guarded

# tests start many short-lived JVMs: the second compiler would cost each of them more than it gives
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# a shared core may stand still at any moment: speed is measured in benchmarks/
hypothesis.settings.register_profile("headrace", deadline=None)
hypothesis.settings.load_profile("headrace")


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.ApacheKafka]:
    """One broker of Apache Kafka; `.bootstrap`, `.kill()`, `.start()`, `.pause()`, `.resume()`."""
    with brokers.apache_kafka(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.ApacheKafka]:
    """A broker of Apache Kafka behind TLS and passwords."""
    with guarded.guarded_kafka(tmp_path_factory.mktemp("guarded")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.EmbeddedBroker]:
    """The embedded broker; `.bootstrap`, `.kill()`, `.start()`, `.pause()`, `.resume()`."""
    with brokers.embedded_broker(tmp_path_factory.mktemp("embedded")) as broker:
        yield broker


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real redis-server; tests share it, so they use keys of their own."""
    # a unix socket's path is at most 107 characters: keep it short
    directory = Path(tmp_path_factory.mktemp("r"))
    with brokers.redis_server(directory) as url:
        yield url


REAL_PROCESSES = ("tests/flow/", "tests/chaos/", "tests/pipeline/")
AGAIN = 3  # a machine that stands still for a minute is no fault of ours; a fault fails every time


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with kills and brokers of their own are run again when they fail; each run is reported."""
    for item in items:
        if item.nodeid.startswith(REAL_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=AGAIN, reruns_delay=2))
