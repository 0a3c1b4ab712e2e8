"""Apache Kafka keeps the contract through the adapter."""

from collections.abc import AsyncIterator

import pytest

from pipeline.kafka import KafkaLog, connect
from pipeline.settings import KafkaSettings
from tests.pipeline.brokers import ApacheKafka
from tests.pipeline.log_contract import LogContract, WallClock


@pytest.fixture
async def log(apache_kafka: ApacheKafka) -> AsyncIterator[KafkaLog]:
    settings = KafkaSettings(bootstrap=apache_kafka.bootstrap)
    log = await connect(settings, WallClock(), client_id="test")
    yield log
    await log.close()


@pytest.mark.kafka
class TestApacheKafka(LogContract):
    pass
