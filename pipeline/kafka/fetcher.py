"""A reader's fetches: to each leader one, of all that it leads, and what they brought.

Nothing runs while nobody polls: a poll sends what is not out, and waits; an answer is put aside by the
transport's own callback, which wakes it. A fetch that brought nothing is sent again from there. What came is
used up before its leader is asked for more, so that no partition waits behind another's long poll; and what
had records goes to the end of the next fetch, so that none is drowned by another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from aiokafka import errors as kafka

from ..log import NotOwner, Record, TopicPartition
from . import options
from .brokers import Brokers
from .leader import Answer, Leader
from .packed import Fetched, unpack_fetch
from .records import Part, Place

logger = logging.getLogger(__name__)
PAUSE = 0.1  # s before a broker that failed is asked again
FAULTS = (kafka.OffsetOutOfRangeError, kafka.TopicAuthorizationFailedError)  # the reader's to judge


class Fetcher:
    def __init__(self, brokers: Brokers, name: str) -> None:
        self._brokers = brokers
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._places: dict[tuple[str, int], Place] = {}
        self._leaders: dict[int, Leader] = {}
        self._parts: deque[tuple[Leader, Part]] = deque()
        self._faults: dict[TopicPartition, tuple[int, type[kafka.KafkaError]]] = {}
        self._grouped = False  # by leader, as the metadata is now
        self._recovering: asyncio.Task[None] | None = None
        self.waiters: set[asyncio.Future[bool]] = set()
        self.heard = self._loop.time()  # of the last sign of a leader's life
        self.trouble = ""  # the last
        brokers.watch(self._changed)

    # where it reads

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these, and nothing else. A poll that waits returns."""
        self._places = {at: Place(at, offset) for at, offset in positions.items()}
        self._parts.clear()
        self._faults.clear()
        for leader in self._leaders.values():
            leader.unread = 0
            leader.interrupt()
        self._grouped = False
        self.heard = self._loop.time()
        self._wake(False)

    def place(self, at: TopicPartition) -> Place:
        """Raises NotOwner for what it does not read."""
        try:
            return self._places[at]
        except KeyError:
            raise NotOwner(f"{at.topic}[{at.partition}] is not being read") from None

    def end(self, at: TopicPartition) -> int | None:
        place = self._places.get(at)
        return None if place is None else place.end

    def seek(self, at: TopicPartition, offset: int) -> None:
        place = self.place(at)
        place.position = offset
        self._faults.pop(at, None)
        for leader, part in [each for each in self._parts if each[1].place is place]:
            self._parts.remove((leader, part))
            leader.unread -= 1
        for leader in self._leaders.values():
            if leader.asks(at) not in (None, offset):
                leader.interrupt()
        self._wake(True)

    # what it brings

    def poll(self, most: int) -> list[Record]:
        """What has come, `most` records at most; sends what is not out."""
        self._send()
        taken: list[Record] = []
        while self._parts and len(taken) < most:
            leader, part = self._parts[0]
            records, all_of_it = part.take(most - len(taken))
            taken = taken + records if taken else records
            if all_of_it:
                self._parts.popleft()
                leader.unread -= 1
        return taken

    def fault(self) -> tuple[TopicPartition, int, type[kafka.KafkaError]] | None:
        """What a leader refused to read, and at which offset."""
        while self._faults:
            at, (offset, kind) = self._faults.popitem()
            if self._places[at].position == offset:
                return at, offset, kind
        return None

    async def arrival(self, deadline: float) -> bool:
        """Wait for something to poll; False at the deadline. A group's coordinator may raise here."""
        if self._loop.time() >= deadline:
            await asyncio.sleep(0)  # let the socket be read, or polls that never wait see nothing
            return False
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self.waiters.add(waiter)
        timer = self._loop.call_at(deadline, _settle, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            self.waiters.discard(waiter)

    def give_up_silent(self) -> None:
        """Leaders that owe an answer for too long are asked on another connection."""
        for leader in self._leaders.values():
            if leader.silent((options.FETCH_WAIT + options.REQUEST_TIMEOUT) / 1000):
                leader.drop()
                self._hold(leader, f"broker {leader.node} does not answer")

    async def close(self) -> None:
        self._brokers.unwatch(self._changed)
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.wait({self._recovering})
        for leader in self._leaders.values():
            leader.drop()
        self._wake(False)

    # asking

    def _changed(self, _: object) -> None:
        self._grouped = False

    def _send(self) -> None:
        if not self._grouped:
            self._group()
        for leader in self._leaders.values():
            leader.ask()

    def _group(self) -> None:
        """Find who leads what; the order of places within a fetch stays."""
        self._grouped = True
        former = [place for leader in self._leaders.values() for place in leader.places]
        places = dict.fromkeys(place for place in former if self._places.get(place.at) is place)
        places |= dict.fromkeys(self._places.values())
        for leader in self._leaders.values():
            leader.places = []
        for place in places:
            node = self._brokers.leader(place.at)
            if node is None:
                self._recover(f"nobody leads {place.at.topic}[{place.at.partition}]")
                continue
            if node not in self._leaders:
                self._leaders[node] = Leader(node, self._brokers, self._name, self._answered)
            self._leaders[node].places.append(place)
            if self._leaders[node].asks(place.at) is None:
                self._leaders[node].interrupt()  # what came to it must not wait for its answer
        for leader in [each for each in self._leaders.values() if not each.places]:
            leader.drop()
            if not leader.unread:
                del self._leaders[leader.node]

    # answers

    def _answered(self, leader: Leader, asked: dict[tuple[str, int], int], answer: Answer) -> None:
        try:
            if isinstance(answer, Exception):
                raise answer
            error, partitions = unpack_fetch(answer)
            if error:
                raise kafka.for_code(error)(f"broker {leader.node}")
        except (kafka.KafkaError, OSError, TimeoutError, ValueError) as failed:
            leader.drop()
            self._hold(leader, repr(failed))
            return
        whole = True  # as the first batch of an answer is, whatever its size
        for fetched in partitions:
            place = self._places.get(fetched.at)
            if place is not None and asked.get(fetched.at) == place.position:
                self._take(leader, place, fetched, whole=whole)
            whole = whole and not fetched.batches
        if leader.unread or self._faults:
            self._wake(True)
        elif self.waiters:
            leader.ask()

    def _take(self, leader: Leader, place: Place, fetched: Fetched, *, whole: bool) -> None:
        if fetched.error:
            kind = kafka.for_code(fetched.error)
            if kind in FAULTS:
                self._faults[place.at] = (place.position, kind)
            else:
                self._hold(leader, f"{place.at.topic}[{place.at.partition}]: {kind.__name__}")
            return
        self.heard = self._loop.time()
        place.end = fetched.end
        if fetched.batches:
            self._parts.append((leader, Part(place, fetched.batches, whole=whole)))
            leader.unread += 1
            leader.places.remove(place)
            leader.places.append(place)

    # trouble

    def _hold(self, leader: Leader, reason: str) -> None:
        leader.held = True
        self._recover(reason)

    def _recover(self, reason: str) -> None:
        self.trouble = reason
        logger.debug("%s asks for metadata: %s", self._name, reason)
        if self._recovering is None:
            self._recovering = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        await asyncio.sleep(PAUSE)
        try:
            await self._brokers.refresh()
        except (kafka.KafkaError, OSError, TimeoutError) as error:
            self.trouble = repr(error)
        self._recovering = None
        self._grouped = False
        for leader in self._leaders.values():
            leader.held = False
        if self.waiters:
            self._send()

    def _wake(self, arrived: bool) -> None:
        for waiter in self.waiters:
            _settle(waiter, arrived)


def _settle(waiter: "asyncio.Future[bool]", arrived: bool) -> None:
    if not waiter.done():
        waiter.set_result(arrived)
