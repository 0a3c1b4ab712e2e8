"""The embedded broker keeps the contract through the Kafka adapter."""

import pytest

from tests.pipeline.broker_contract import BrokerContract
from tests.pipeline.brokers import EmbeddedBroker


class TestEmbedded(BrokerContract):
    @pytest.fixture
    def broker(self, embedded_broker: EmbeddedBroker) -> EmbeddedBroker:
        return embedded_broker
