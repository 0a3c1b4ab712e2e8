"""The log on a Kafka cluster, or on the embedded broker: aiokafka behind the log port."""

from .log import KafkaLog, connect

__all__ = ["KafkaLog", "connect"]
