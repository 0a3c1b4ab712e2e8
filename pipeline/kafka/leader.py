"""A broker that leads some of a reader's partitions, and the one fetch that is out to it."""

import asyncio
from collections.abc import Callable

from aiokafka import errors as kafka

from . import options
from .brokers import Brokers
from .connection import Connection
from .packed import FETCH, pack_fetch
from .records import Place

Answer = memoryview | Exception
Answered = Callable[["Leader", dict[tuple[str, int], int], Answer], None]


class Leader:
    def __init__(self, node: int, brokers: Brokers, name: str, answered: Answered) -> None:
        self.node = node
        self.places: list[Place] = []
        self.unread = 0  # parts of its last answer
        self.held = False  # it failed, and metadata is asked
        self._brokers = brokers
        self._name = name  # in the broker's books
        self._tell = answered
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._asked: dict[tuple[str, int], int] = {}  # offsets of the fetch that is out
        self._sent = 0.0

    def ask(self) -> None:
        """A fetch of all that it leads, unless one is out, or what came is not used up."""
        if self._asked or self._opening or self.unread or self.held or not self.places:
            return
        if self._connection is None or self._connection.ended:
            self._opening = asyncio.create_task(self._open())
            return
        self._asked = {place.at: place.position for place in self.places}
        self._sent = self._loop.time()
        body = pack_fetch(
            self._asked.items(),
            wait=options.FETCH_WAIT,
            most=options.FETCH_BYTES,
            most_each=options.PARTITION_BYTES,
        )
        self._connection.request(FETCH, body, self._answered)

    def asks(self, at: tuple[str, int]) -> int | None:
        """The offset that the fetch that is out asks for."""
        return self._asked.get(at)

    def silent(self, seconds: float) -> bool:
        """Whether it owes an answer for so long."""
        return bool(self._asked) and self._loop.time() - self._sent > seconds

    def interrupt(self) -> None:
        """A broker cannot be told to give up a fetch, but by the end of the connection."""
        if self._asked:
            self.drop()

    def drop(self) -> None:
        """End the connection; the next fetch opens another."""
        self._asked = {}
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _open(self) -> None:
        try:
            self._connection = await self._brokers.open(self.node, self._name)
        except (kafka.KafkaError, OSError, TimeoutError) as error:
            self._opening = None
            self._tell(self, {}, error)
        else:
            self._opening = None
            self.ask()

    def _answered(self, raw: memoryview | None) -> None:
        asked, self._asked = self._asked, {}
        ended = kafka.KafkaConnectionError(f"the connection to broker {self.node} ended")
        self._tell(self, asked, ended if raw is None else raw)
