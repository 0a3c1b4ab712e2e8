"""Whether a broker lets us in. The client itself only logs why it could not begin."""

import asyncio
from typing import Any

from aiokafka import errors as kafka
from aiokafka.conn import collect_hosts, create_conn

from ..log import LogUnavailable, NotAuthorized

PAUSE = 0.2  # s between rounds over the addresses


async def knock(options: dict[str, Any], wait: float) -> None:
    """Raises NotAuthorized as soon as a broker refuses us, LogUnavailable after `wait` s."""
    reason: object = "no answer"
    try:
        async with asyncio.timeout(wait):
            while True:
                for host, port, _ in collect_hosts(options["bootstrap_servers"]):
                    try:
                        connection = await create_conn(host, port, **_relevant(options))
                    except kafka.SaslAuthenticationFailed as error:
                        raise NotAuthorized(f"{host}:{port}: {error}") from error
                    except (kafka.KafkaError, OSError, TimeoutError) as error:
                        reason = error
                    else:
                        connection.close()
                        return
                await asyncio.sleep(PAUSE)
    except TimeoutError as error:
        where = options["bootstrap_servers"]
        raise LogUnavailable(f"no broker at {where} within {wait} s: {reason}") from error


def _relevant(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "bootstrap_servers"}
