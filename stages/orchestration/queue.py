"""What is in hand and waits for a worker, by model; the queue itself stays in Kafka. Pure."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.lanes import LaneQueue
from pipeline.settings import OrchestrationSettings
from pipeline.tracing import Span
from pipeline.tracker import Tracker
from schemas.work import Place, Ready

DEFAULT_LANE = "silver"


def lane_weights(settings: OrchestrationSettings) -> dict[str, int]:
    """Shares of the lanes, by lane."""
    return {
        "gold": settings.weight_gold,
        "silver": settings.weight_silver,
        "bronze": settings.weight_bronze,
    }


@dataclass(slots=True, eq=False)
class Waiting:
    """A ready record in hand, for its first attempt or a later one."""

    ready: Ready
    place: Place
    partition: int  # of hr.ledger, the same as of hr.ready.*
    source: Tracker | None  # where it is done when its lease counts; None: it counted long ago
    span: Span
    taken: int  # ms, when it came into hand; when its worker was chosen, once it was
    avoid: str | None = None  # epoch that gave the last attempt back
    alone: bool = False  # the last attempt died without a token
    leased: bool = False  # a lease is being written: no longer in the queue
    dropped: bool = False  # ended otherwise: skipped when its turn comes
    copies: list["Waiting"] = field(default_factory=list)  # read while this one was in hand

    def complete(self) -> None:
        """Its lease counts, or it has ended: the ready record asks for nothing more, nor do its copies.

        Not before: where partitions change hands, the next owner may have left the request to a copy
        that a late commit of ours then passes.
        """
        self.dropped = True
        if self.source is not None:
            self.source.done(self.place.offset)
        for copy in self.copies:
            copy.complete()


@dataclass(slots=True)
class _Line:
    """Those of one model."""

    lanes: LaneQueue[Waiting]
    again: deque[Waiting] = field(default_factory=deque)  # later attempts, and those put back

    def __len__(self) -> int:
        return len(self.lanes) + len(self.again)


class ReadyQueue:
    """Lanes by deficit round robin and tenants in turn, a line for each model."""

    def __init__(self, weights: Mapping[str, int], floor: float) -> None:
        self.weights = weights
        self.floor = floor
        self.by_id: dict[str, Waiting] = {}  # also those whose lease is being written
        self._lines: dict[str, _Line] = {}

    @property
    def models(self) -> list[str]:
        return [model for model, line in self._lines.items() if len(line)]

    def length(self, model: str) -> int:
        line = self._lines.get(model)
        return len(line) if line else 0

    def in_lane(self, model: str, lane: str) -> int:
        line = self._lines.get(model)
        return line.lanes.waiting(lane) if line else 0

    def push(self, item: Waiting, lane: str) -> None:
        line = self._line(item.ready.model)
        line.lanes.push(lane if lane in self.weights else DEFAULT_LANE, item.ready.tenant, item)
        self.by_id[item.ready.request_id] = item

    def push_front(self, item: Waiting) -> None:
        """Ahead of every lane: it had its turn already."""
        item.leased = False
        self._line(item.ready.model).again.append(item)
        self.by_id[item.ready.request_id] = item

    def pop(self, model: str) -> Waiting | None:
        """The next that still waits."""
        line = self._lines.get(model)
        while line is not None and len(line):
            item = line.again.popleft() if line.again else line.lanes.pop()
            if item is not None and not item.dropped:
                return item
        return None

    def done(self, request_id: str) -> Waiting | None:
        """Its lease counts, or it has ended."""
        item = self.by_id.pop(request_id, None)
        if item is not None:
            item.complete()
        return item

    def drop_partition(self, partition: int) -> None:
        """No longer ours: another owner will read them again."""
        for request_id, item in list(self.by_id.items()):
            if item.partition == partition:
                item.dropped = True
                del self.by_id[request_id]

    def items(self) -> Iterator[Waiting]:
        """All that wait, in no order."""
        return (item for item in self.by_id.values() if not item.leased and not item.dropped)

    def _line(self, model: str) -> _Line:
        line = self._lines.get(model)
        if line is None:
            for name, other in list(self._lines.items()):
                if not len(other):
                    del self._lines[name]  # as many lines as models that wait
            line = self._lines[model] = _Line(LaneQueue(self.weights, floor=self.floor))
        return line
