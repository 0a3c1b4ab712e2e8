"""Watches while it happens: reads every record as it lands, and judges every commit and every step.

What a commit promises is that nothing before it has to be read again. The witness folds the log itself,
so that at each commit it knows what is still owed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from pipeline.log import Commit, Record, TopicPartition
from pipeline.memory import MemoryCluster
from pipeline.topics import Topics
from schemas.codec import Unreadable, decode, int_header, name_of, text_header
from schemas.ids import InvalidId, birth, derive
from schemas.ledger import Lease
from schemas.result import Result
from schemas.tokens import Chunk, End, decode_event
from schemas.work import Order

from .reference import Ledger, Slot

Owed = dict[TopicPartition, dict[str, int]]  # partition → request → its offset there


class Witness:
    """`faults`: what was seen to be wrong. `told` counts what proves that faults hit work."""

    def __init__(self, cluster: MemoryCluster, topics: Topics, told: Counter[str]) -> None:
        self.cluster, self.topics, self.told = cluster, topics, told
        self.faults: list[str] = []
        self.folds: dict[str, Ledger] = defaultdict(Ledger)
        self.slots: dict[str, Slot] = defaultdict(Slot)
        self.shown: dict[str, set[int]] = defaultdict(set)  # request → offsets that clients may see
        self.said: dict[str, set[int]] = defaultdict(set)  # request → offsets of what it said
        self.histories: dict[str, list[str]] = defaultdict(list)
        self.outcomes: dict[str, tuple[str, int]] = {}
        self.ends: dict[str, End] = {}
        self._holders: dict[tuple[str, int], tuple[str, str]] = {}  # (request, attempt) → life
        self._undelivered: Owed = defaultdict(dict)
        self._open: Owed = defaultdict(dict)
        self._unleased: Owed = defaultdict(dict)
        self._unread: dict[TopicPartition, dict[int, Record]] = defaultdict(dict)
        self.taken: set[str] = set()  # requests that ingress passed on or ended
        self._readers: dict[str, Callable[[Record], None]] = {
            topics.requests: self._request,
            topics.ledger: self._ledger,
            topics.work: self._order,
            topics.tokens: self._event,
            topics.results: self._result,
            **{topics.ready(lane): self._ready for lane in ("gold", "silver", "bronze")},
        }
        self._positions: dict[TopicPartition, int] = {}
        self._known = 0  # topics

    def running(self) -> Iterator[tuple[str, int]]:
        """(request, attempt) of all that is leased and has not ended."""
        self.look()
        for request_id, fold in self.folds.items():
            if fold.n and not fold.ended:
                yield request_id, fold.n

    def look(self) -> None:
        """Read what has landed."""
        if self._known != len(self.cluster.topics):
            self._discover()
        for at, position in self._positions.items():
            partition = self.cluster.partition(at)
            if position != partition.end:
                read = self._readers[at.topic]
                for record in partition.read(position, 1 << 30):
                    read(record)
                self._positions[at] = partition.end

    def _discover(self) -> None:
        """Models without a worker get topics of their own as they are needed."""
        waiting = self.topics.waiting("")
        self._known = len(self.cluster.topics)
        for topic in self.cluster.topics:
            if topic.startswith(waiting):
                self._readers[topic] = self._ready
        for topic in self._readers:
            for number in range(self.cluster.count(topic)):
                self._positions.setdefault(TopicPartition(topic, number), 0)

    def committed(self, group: str, offsets: Mapping[TopicPartition, Commit]) -> None:
        """A group says that it needs nothing before these offsets again."""
        self.look()
        for at, commit in offsets.items():
            for request_id, offset in self._owed(group, at):
                if offset < commit.offset:
                    self.faults.append(
                        f"{group} committed {commit.offset} of {at.topic}[{at.partition}] and "
                        f"still owes {request_id} at {offset}"
                    )

    def _owed(self, group: str, at: TopicPartition) -> Iterator[tuple[str, int]]:
        if group == "hr.delivery":
            yield from self._undelivered[at].items()
        elif group == "hr.orchestration":
            yield from self._open[at].items()
        elif group == "hr.orchestration.ready":
            yield from self._unleased[at].items()
        elif group == "hr.ingress":
            for offset, record in list(self._unread[at].items()):
                ids = _ids(record)
                if any(each in self.taken for each in ids):
                    del self._unread[at][offset]
                else:
                    yield ids[-1], offset

    # what lands

    def _request(self, record: Record) -> None:
        self._unread[record.at][record.offset] = record

    def _ready(self, record: Record) -> None:
        request_id = _key(record)
        if name_of(text_header(record.headers, "type") or "") != "ready":
            return
        self.taken.add(request_id)
        fold = self.folds.get(request_id)
        if record.topic.startswith(self.topics.waiting("")):
            self.told["requests that waited on a topic"] += 1
            for lane in self._unleased.values():  # moved: it is owed there now
                lane.pop(request_id, None)
        if fold is None or (fold.n == 0 and not fold.ended):
            self._unleased[record.at].setdefault(request_id, record.offset)

    def _ledger(self, record: Record) -> None:
        kind = name_of(text_header(record.headers, "type") or "")
        attempt = int_header(record.headers, "attempt")
        request_id = text_header(record.headers, "request-id") or _key(record)
        fold = self.folds[request_id]
        if not fold.read(kind, -1 if attempt is None else attempt, record.offset):
            if kind in ("lease", "output"):
                self.told[f"void {kind}s"] += 1
            return
        if kind == "lease":
            with suppress(Unreadable):
                lease: Lease = decode(record.value, Lease)
                self._holders[request_id, lease.attempt] = lease.worker, lease.epoch
        self.histories[request_id].append(kind if attempt is None else f"{kind} {attempt}")
        at = record.at
        self._open[at].setdefault(request_id, record.offset)
        if kind in ("lease", "output"):
            self.taken.add(request_id)
            self._undelivered[at].setdefault(request_id, record.offset)
            for waiting in self._unleased.values():
                waiting.pop(request_id, None)
        if fold.ended:
            self._open[at].pop(request_id)

    def _order(self, record: Record) -> None:
        """An order goes out only for the lease that counts."""
        try:
            order: Order = decode(record.value, Order)
        except Unreadable:
            return
        holder = self._holders.get((order.request_id, order.attempt))
        if holder != (order.worker, order.epoch):
            self.faults.append(
                f"{order.request_id} attempt {order.attempt} was ordered of {order.worker} "
                f"({order.epoch}), and is leased to {holder}"
            )

    def _event(self, record: Record) -> None:
        request_id = _key(record)
        try:
            event = decode_event(record.value)
        except Unreadable:
            return
        fold = self.slots[request_id]
        if fold.read(event):
            self.shown[request_id].add(record.offset)
            if isinstance(event, Chunk):
                self.said[request_id].add(record.offset)
        elif isinstance(event, Chunk) and event.attempt < fold.a:
            self.told["tokens of superseded attempts"] += len(event.ids)
        if isinstance(event, End):
            self.ends.setdefault(request_id, event)
            self._delivered(request_id)

    def _result(self, record: Record) -> None:
        try:
            result = decode(record.value, Result)
        except Unreadable:
            return
        said = (result.outcome, result.output)
        if self.outcomes.setdefault(result.id, said) != said:
            self.faults.append(f"{result.id} ended {self.outcomes[result.id]}, and then {said}")
        fold = self.folds.get(result.id)
        if fold is None or fold.output != result.output:
            self.faults.append(f"{result.id} has a result of an output that does not count: {said}")
        self._delivered(result.id)

    def _delivered(self, request_id: str) -> None:
        if request_id in self.ends and request_id in self.outcomes:
            for owed in self._undelivered.values():
                owed.pop(request_id, None)


def _key(record: Record) -> str:
    return (record.key or b"").decode("utf-8", "replace")


def _ids(record: Record) -> list[str]:
    """Under which ids a request may go on: as it says, or by its place."""
    ids = [text_header(record.headers, "request-id") or ""]
    with suppress(ValueError, AttributeError):  # no JSON object has no id of its own
        ids.append(str(json.loads(record.value or b"").get("id")))
    with suppress(InvalidId):
        birth(_key(record))
        ids.append(_key(record))
    return [*ids, derive(record.timestamp, record.topic, record.partition, record.offset)]
