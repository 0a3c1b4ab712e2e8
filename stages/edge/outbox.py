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
from schemas.ledger import Cancel
from schemas.request import Request

PENDING_LIMIT = 2_000  # unacknowledged records: beyond it the broker is as good as away
AWAY_RETRY = 2  # s


class Outbox:
    def __init__(self, member: Member, urgent: Writer, bulk: Writer) -> None:
        self.member = member
        self.urgent = urgent  # requests, cancels
        self.bulk = bulk  # attachments, status

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
        """The request, keyed by its id, so that any edge finds it before ingress has read it."""
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
        record = Outgoing(
            self.member.topics.requests, encode(request), request_id.encode(), headers=headers
        )
        return self.urgent.send(record)

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

    def unknown(
        self, request_id: str, tenant: str, lane: str, correlation_id: str | None
    ) -> Refusal:
        """Nobody knows whether the request was accepted: it is cancelled, and its client told."""
        self.cancel(request_id, "publish_unknown", tenant, lane, correlation_id)
        message = f"no broker acknowledged {request_id} in time; it was cancelled, ask again"
        return Refusal("broker_unavailable", message, retry_after=AWAY_RETRY)

    def control(self, record: Attach | Detach) -> None:
        """One partition is one order for all of them."""
        headers = headers_of(tag_of(record), request_id=record.request_id)
        key = record.request_id.encode()
        sent = self.bulk.send(
            Outgoing(self.member.topics.control, encode(record), key, partition=0, headers=headers)
        )
        sent.add_done_callback(_report)


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
