"""Which partition a record goes to: its own choice, its key's murmur2, or the next in turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from schemas.ids import partition_of

from .batches import BACKOFF, Entry
from .log import LogError, LogUnavailable, TopicPartition, UnknownTopic

logger = logging.getLogger(__name__)


class Router:
    """Records of a topic whose partitions are not known yet wait, in order, until they are."""

    def __init__(
        self,
        partitions: Callable[[str], Awaitable[int]],
        deliver: Callable[[TopicPartition, Entry], None],
        refuse: Callable[[list[Entry], BaseException], None],
    ) -> None:
        self._partitions = partitions
        self._deliver = deliver
        self._refuse = refuse
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, list[Entry]] = {}  # topic → records behind one question
        self._questions: set[asyncio.Task[None]] = set()
        self._turn = 0

    def route(self, entry: Entry) -> None:
        topic, _, _, partition, _, _ = record = entry.record
        count = self._counts.get(topic)
        if topic in self._waiting:
            self._waiting[topic].append(entry)
        elif count is None or not _fits(partition, count):
            self._waiting[topic] = [entry]
            task = asyncio.get_running_loop().create_task(self._ask(topic))
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)
        else:
            if partition is None:
                partition = self._choose(record.key, count)
            self._deliver(TopicPartition(topic, partition), entry)

    def forget(self, topic: str) -> None:
        """It refused something: it may come back with another shape."""
        self._counts.pop(topic, None)

    def heads(self) -> list[Entry]:
        """The oldest record of each topic that waits."""
        return [waiting[0] for waiting in self._waiting.values() if waiting]

    def take(self) -> list[Entry]:
        """Give up all that waits."""
        found = [entry for waiting in self._waiting.values() for entry in waiting]
        self._waiting = {}
        return found

    def stop(self) -> None:
        for task in self._questions:
            task.cancel()

    def _choose(self, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_of(key, count)
        self._turn += 1
        return self._turn % count

    async def _ask(self, topic: str) -> None:
        tries = 0
        while True:
            try:
                count = await self._partitions(topic)
                break
            except LogUnavailable as error:
                logger.warning("partitions of %s: %s; trying again", topic, error)
                await asyncio.sleep(BACKOFF[min(tries, len(BACKOFF) - 1)])
                tries += 1
            except LogError as error:
                self._refuse(self._waiting.pop(topic), error)
                return
        self._counts[topic] = count
        for entry in self._waiting.pop(topic):
            partition = entry.record.partition
            if _fits(partition, count):
                self.route(entry)
            else:
                gone = UnknownTopic(f"{topic} has {count} partitions, no {partition}")
                self._refuse([entry], gone)


def _fits(partition: int | None, count: int) -> bool:
    return partition is None or 0 <= partition < count
