"""Who is reading which request: told to the owners of the requests, who cancel what nobody waits for."""

from dataclasses import dataclass, field

from pipeline.member import Member
from schemas.control import Attach, Detach

from .outbox import Outbox

REPEAT = 600.0  # s between repeats: `hr.control` forgets after an hour
OBSERVER = 0  # a grace of 0 joins: it counts as attached, and by its leaving nothing is cancelled


@dataclass(slots=True)
class Attachments:
    member: Member
    outbox: Outbox
    open: dict[str, Attach] = field(default_factory=dict)
    _count: int = 0

    def attach(
        self, request_id: str, *, grace: float, tenant: str, lane: str, correlation_id: str | None
    ) -> str:
        """A client reads the request from now on. The stream's name, for `detach`."""
        self._count += 1
        record = Attach(
            request_id=request_id,
            stream=f"{self.member.epoch}-{self._count}",
            edge=self.member.id,
            epoch=self.member.epoch,
            grace=int(grace * 1000),
            tenant=tenant,
            lane=lane,
            correlation_id=correlation_id,
        )
        self.open[record.stream] = record
        self.outbox.control(record)
        return record.stream

    def detach(self, stream: str, *, gone: bool) -> None:
        """`gone`: the client left. Otherwise the stream has ended, and nothing follows from it."""
        record = self.open.pop(stream, None)
        if record is not None and gone:
            self._write(record, gone=True)

    def drain(self) -> None:
        """This edge goes: its clients will come back elsewhere, so nothing is to follow."""
        for record in self.open.values():
            self._write(record, gone=False)
        self.open.clear()

    def _write(self, record: Attach, *, gone: bool) -> None:
        self.outbox.control(
            Detach(
                request_id=record.request_id,
                stream=record.stream,
                edge=record.edge,
                epoch=record.epoch,
                gone=gone,
            )
        )

    def repeat(self) -> None:
        """Every `REPEAT` seconds."""
        for record in self.open.values():
            self.outbox.control(record)
