"""What every client is made with: where the brokers are, who we are, how long we wait."""

from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.helpers import create_ssl_context

from ..settings import KafkaSettings

REQUEST_TIMEOUT = 10_000  # ms; a broker that hangs longer is asked again
# ms that a broker holds an empty fetch; it answers at once when there is a record. This is what an idle
# reader costs, and how soon it can tell that its brokers are silent
FETCH_WAIT = 5_000
FETCH_BYTES = (
    4 << 20
)  # of one answer at most: what a reader that does not poll costs, for each broker
PARTITION_BYTES = 262_144  # of one partition in it; a larger record comes whole
HEARTBEAT = 3_000  # ms; also how soon a member hears of a rebalance
JOIN_TIMEOUT = 50_000  # ms; a join waits until a dead member's session has run out
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


def member(assignor: str) -> dict[str, Any]:
    return {
        "enable_auto_commit": False,
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": HEARTBEAT,
        "rebalance_timeout_ms": 60_000,
        "max_poll_interval_ms": 3_600_000,  # a full stage does not poll; it has a watchdog of its own
        "assignors": (ASSIGNORS[assignor],),
    }
