"""The whole pipeline on both brokers, started once a session."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.flow.installation import Installation, installation
from tests.pipeline.brokers import ApacheKafka


@pytest.fixture(scope="session", params=["embedded", "apache"])
def headrace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """A running Headrace with the real model."""
    bootstrap = None
    if request.param == "apache":
        kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
        bootstrap = kafka.bootstrap
    home = tmp_path_factory.mktemp(f"home-{request.param}")
    with installation(home, request.param, bootstrap) as made:
        yield made


@pytest.fixture
def client(headrace: Installation) -> Iterator[OpenAI]:
    """The official client, unmodified."""
    with OpenAI(
        base_url=f"{headrace.url()}/v1", api_key="none", max_retries=0, timeout=120
    ) as made:
        yield made
