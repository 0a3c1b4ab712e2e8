"""What every client is made with: where the brokers are, who we are, how long we wait."""

from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.helpers import create_ssl_context

from ..settings import KafkaSettings

REQUEST_TIMEOUT = 10_000  # ms; a broker that hangs longer is asked again
# ms that a broker holds an empty fetch; it answers at once when there is a record. This is what an idle
# consumer costs (0.25 % of a core with the broker's part at 500, 0.07 % at 2,000), and what a partition
# waits for that was drained later than 100 ms while another one's fetch was out, and what a seek waits for
FETCH_WAIT = 500
IDLE_WAIT = 2_000  # where nothing came for IDLE_AFTER, and always where one partition is read
IDLE_AFTER = 5.0  # s
HEARTBEAT = 3_000  # ms; also how soon a member hears of a rebalance
ASSIGNORS = {  # never Sticky: it keeps state for the whole process
    "roundrobin": RoundRobinPartitionAssignor,
    "range": RangePartitionAssignor,
}


def common(settings: KafkaSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap,
        "security_protocol": settings.security_protocol,
        "request_timeout_ms": REQUEST_TIMEOUT,
    }
    if "SSL" in settings.security_protocol:
        options["ssl_context"] = create_ssl_context(
            cafile=settings.ssl_cafile or None,
            certfile=settings.ssl_certfile or None,
            keyfile=settings.ssl_keyfile or None,
        )
    if "SASL" in settings.security_protocol:
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password
    return options


def fetching(wait: int = FETCH_WAIT) -> dict[str, Any]:
    return {
        "enable_auto_commit": False,
        "fetch_max_wait_ms": wait,
        "max_partition_fetch_bytes": 262_144,  # unread at most, a partition; a larger record comes whole
        "consumer_timeout_ms": 5_000,  # events wake the fetch loop; the default does so 5 times a second
        "isolation_level": "read_uncommitted",
    }


def member(assignor: str) -> dict[str, Any]:
    return {
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": HEARTBEAT,
        "rebalance_timeout_ms": 60_000,
        "max_poll_interval_ms": 3_600_000,  # a full stage does not poll; it has a watchdog of its own
        # a join waits until a dead member's session has run out
        "request_timeout_ms": 50_000,
        "partition_assignment_strategy": (ASSIGNORS[assignor],),
    }
