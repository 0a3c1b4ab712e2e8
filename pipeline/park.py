"""Where records wait for another try. Pure: one constant delay, so the first in is the first due."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Park(Generic[Item]):
    """Bounded: who would put more in must first stop reading."""

    def __init__(self, delay: float, limit: int) -> None:
        self.delay = delay  # s
        self.limit = limit
        self._items: deque[tuple[float, Item]] = deque()  # (due in loop time, item)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        return len(self._items) >= self.limit

    def put(self, item: Item, now: float) -> None:
        self._items.append((now + self.delay, item))

    def next_due(self) -> float | None:
        return self._items[0][0] if self._items else None

    def take_due(self, now: float) -> Item | None:
        """The first item, once its delay is over."""
        if self._items and self._items[0][0] <= now:
            return self._items.popleft()[1]
        return None
