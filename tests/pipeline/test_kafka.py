"""Apache Kafka keeps the contract through the adapter."""

import pytest

from tests.pipeline.broker_contract import BrokerContract
from tests.pipeline.brokers import ApacheKafka


@pytest.mark.kafka
class TestApacheKafka(BrokerContract):
    @pytest.fixture
    def broker(self, apache_kafka: ApacheKafka) -> ApacheKafka:
        return apache_kafka
