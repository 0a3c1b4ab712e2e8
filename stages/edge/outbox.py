"""What an edge writes: requests and cancels at once, attachments through a queue of their own.

The writers keep order and keep trying; nothing here waits in the handler of a connection that is dying.
"""

import asyncio

from pipeline import logs
from pipeline.log import (
    LogError,
    LogUnavailable,
    NotAuthorized,
    Outgoing,
    Placed,
    RecordTooLarge,
    UnknownTopic,
    Writer,
)
from pipeline.member import Member
from schemas.codec import encode, headers_of, tag_of
from schemas.control import Attach, Detach
from schemas.errors import Refusal
from schemas.ids import birth
from schemas.ledger import Cancel
from schemas.request import Request

PENDING_LIMIT = 2_000  # unacknowledged records: beyond it the broker is as good as away
TURN = 10  # ms: about a produce request's way to the broker and back
AWAY_RETRY = 2  # s


class Outbox:
    def __init__(self, member: Member, urgent: Writer) -> None:
        self.member = member
        self.urgent = urgent

    def check(self) -> None:
        """Raises Refusal while records pile up."""
        if self.urgent.pending >= PENDING_LIMIT:
            raise Refusal(
                "broker_unavailable", "no broker takes our records", retry_after=AWAY_RETRY
            )

    def publish(
        self,
        request: Request,
        request_id: str,
        *,
        tenant: str,
        lane: str,
        deadline: int,
        correlation_id: str | None,
        traceparent: str | None,
        tracestate: str | None,
    ) -> "asyncio.Future[Placed]":
        """The request, where any edge finds it before ingress has read it."""
        headers = headers_of(
            "request/1",
            request_id=request_id,
            tenant=tenant,
            lane=lane,
            deadline=deadline,
            correlation_id=correlation_id,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        topics = self.member.topics
        return self.urgent.send(
            Outgoing(
                topics.requests,
                encode(request),
                request_id.encode(),
                partition=door_of(request_id, topics.requests_partitions),
                headers=headers,
            )
        )

    async def acknowledged(self, sent: "asyncio.Future[Placed]", waited: float = 0.0) -> bool:
        """Whether the record was acked within the limit, of which `waited` seconds are over; False:
        nobody knows. Raises Refusal."""
        left = self.member.settings.edge.publish_wait - waited
        if not sent.done() and left > 0:
            await asyncio.wait([sent], timeout=left)
        return sent.done() and acked(sent)

    def cancel(
        self, request_id: str, why: str, tenant: str, lane: str, correlation_id: str | None
    ) -> "asyncio.Future[Placed]":
        """The request is to end; its owner sees to it."""
        record = Cancel(
            request_id=request_id,
            why=why,
            by=self.member.id,
            tenant=tenant,
            lane=lane,
            correlation_id=correlation_id,
        )
        sent = self.urgent.send(
            Outgoing(
                self.member.topics.ledger,
                encode(record),
                record.request_id.encode(),
                headers=headers_of(
                    tag_of(record),
                    request_id=record.request_id,
                    tenant=record.tenant,
                    lane=record.lane,
                    correlation_id=record.correlation_id,
                ),
            )
        )
        sent.add_done_callback(_report)
        return sent

    def control(self, record: Attach | Detach) -> None:
        """One partition is one order for all of them."""
        headers = headers_of(tag_of(record), request_id=record.request_id)
        key = record.request_id.encode()
        sent = self.urgent.send(  # with the request it goes in one packet
            Outgoing(self.member.topics.control, encode(record), key, partition=0, headers=headers)
        )
        sent.add_done_callback(_report)


def door_of(request_id: str, partitions: int) -> int:
    """The partition of `hr.requests` into which an edge puts a request: by the time of its birth, so that
    those of one moment are one batch and cost one append, and the partitions take turns."""
    return birth(request_id) // TURN % partitions


def acked(sent: "asyncio.Future[Placed]") -> bool:
    """Of a future that is done. Raises Refusal where the log will never take the record."""
    error = sent.exception()
    if error is None:
        return True
    if isinstance(error, RecordTooLarge):
        raise Refusal("request_too_large", f"the request does not fit into a record: {error}")
    if isinstance(error, UnknownTopic | NotAuthorized | LogUnavailable):
        raise Refusal("broker_unavailable", str(error), retry_after=AWAY_RETRY) from error
    raise error


def _report(sent: "asyncio.Future[Placed]") -> None:
    if not sent.cancelled() and isinstance(error := sent.exception(), LogError):
        logs.error("edge_write", error=error)
