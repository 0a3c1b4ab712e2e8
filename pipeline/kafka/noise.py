"""The client library says the same every 100 ms while a broker is away: once in a while is enough."""

import logging
import time

EVERY = 10.0  # s between two records of one kind
LOGGERS = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.cluster",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)


class Seldom(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], float] = {}  # place in the code → when it spoke

    def filter(self, record: logging.LogRecord) -> bool:
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._last.get(place, -EVERY) < EVERY:
            return False
        self._last[place] = now
        return True


_seldom = Seldom()


def quieten() -> None:
    """A filter is added once, however often this is called."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_seldom)
