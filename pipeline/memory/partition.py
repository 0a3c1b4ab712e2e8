"""One partition: a list of records with offsets."""

from bisect import bisect_left
from typing import TYPE_CHECKING

from ..log import OffsetGone, Outgoing, Record, TopicPartition, TopicSpec

if TYPE_CHECKING:
    from .reader import MemoryReader


class Partition:
    def __init__(self, at: TopicPartition, spec: TopicSpec) -> None:
        self.at = at
        self.stamped = spec.configs.get("message.timestamp.type") == "LogAppendTime"
        self.max_bytes = int(spec.configs.get("max.message.bytes", 1_048_588))  # Kafka's default
        self.records: list[Record] = []
        self.start = 0
        self.end = 0
        self.available = True
        self.readers: dict[MemoryReader, None] = {}  # a dict keeps the order of coming

    def append(self, record: Outgoing, now: int) -> int:
        """Returns the record's timestamp, ms."""
        timestamp = now if self.stamped or record.timestamp is None else record.timestamp
        topic, partition = self.at
        self.records.append(
            Record(topic, partition, self.end, timestamp, record.key, record.value, record.headers)
        )
        self.end += 1
        return timestamp

    def wake(self) -> None:
        for reader in self.readers:
            reader.notice(self)

    def read(self, offset: int, limit: int) -> list[Record]:
        """Up to `limit` records from `offset` on. Raises OffsetGone."""
        if not self.start <= offset <= self.end:
            raise OffsetGone(self.at, offset, self.start, self.end)
        if offset == self.end:
            return []
        first = self._index(offset)
        return self.records[first : first + limit]

    def offset_for(self, ms: int) -> int | None:
        for record in self.records:  # times need not rise: the first that is late enough
            if record.timestamp >= ms:
                return record.offset
        return None

    def trim(self, before: int) -> None:
        """Retention: drop every record below `before`."""
        self.records = self.records[self._index(before) :]
        self.start = max(self.start, min(before, self.end))

    def compact(self) -> None:
        """Keep each key's last record; offsets stay, with holes between them."""
        last = {record.key: record.offset for record in self.records}
        self.records = [record for record in self.records if last[record.key] == record.offset]

    def _index(self, offset: int) -> int:
        if len(self.records) == self.end - self.start:  # no holes
            return max(0, offset - self.start)
        return bisect_left(self.records, offset, key=lambda record: record.offset)
