"""Ends without a worker: lease(n+1, ourselves) → read back → open(n+1) and the slot → output(n+1).

A request that no attempt ever touched needs no `open`: nothing can have been said of it.
"""

import asyncio

from pipeline import logs, metrics
from pipeline.log import LogUnavailable, Outgoing
from schemas.codec import encode, headers_of, tag_of
from schemas.errors import CODES, Error
from schemas.ledger import Lease
from schemas.tokens import Open

from .books import Case
from .desk import Desk, Ending, Pending
from .slots import Spoken, read_back

RETRY = 0.5  # s until a slot is read again after a broker error


def _error(code: str, message: str) -> Error:
    return Error(message=message, type=CODES[code].type, code=code)


def expired(where: str) -> Error:
    return _error("deadline_exceeded", f"the deadline passed {where}")


def cancelled(why: str) -> Error:
    return _error("request_cancelled", f"the request was cancelled ({why})")


def unreadable(what: str) -> Error:
    return _error("unreadable", f"a record of this request cannot be read: {what}"[:300])


def kills_workers() -> Error:
    return _error(
        "request_kills_workers", "attempt after attempt ended with its worker, without a token"
    )


class Endings:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.active: set[tuple[str, int]] = set()  # (request id, attempt) that we are ending
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(16)  # slots read back at once: a few readers, not hundreds

    def begin(self, ending: Ending) -> None:
        """Take the lease of the next attempt for ourselves; the rest follows when it counts."""
        desk, me, subject = self.desk, self.desk.member, ending.subject
        request_id = subject.request_id
        if request_id in desk.pending:  # what is being written decides; the next look comes back
            if ending.complete is not None:
                ending.complete()
            return
        case = desk.case(request_id)
        attempt = case.fold.n + 1 if case is not None else 1
        nonce = desk.nonce()
        lease = subject.lease(
            attempt,
            me.id,
            me.epoch,
            orchestrator=me.id,
            slot_from=self._slot_from(case, request_id),
            nonce=nonce,
            why=f"ends it: {ending.outcome}",
            same_answer=case is None or case.kept,
        )
        desk.pending[request_id] = Pending(nonce, desk.partition(request_id), ending=ending)
        desk.write_ledger(lease, attempt=attempt, deadline=subject.deadline, trace=ending.trace)
        metrics.leases.labels("end").inc()

    def read_back(self, case: Case, lease: Lease, ending: Ending) -> None:
        """Our own lease was read as counted."""
        self.active.add((lease.request_id, lease.attempt))
        if lease.attempt == 1:
            self._output(lease, ending, Spoken())
            return
        task = asyncio.get_running_loop().create_task(self._close_slot(case, lease, ending))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _close_slot(self, case: Case, lease: Lease, ending: Ending) -> None:
        """Fence the lower attempts off, and take over what they said."""
        async with self._room:
            while case.fold.n == lease.attempt and not case.fold.ended:
                try:
                    opened = await self.desk.send(self._open(lease))
                    spoken = await read_back(
                        self.desk.member.log,
                        self.desk.member.topics,
                        {lease.request_id: lease.slot_from},
                    )
                except (LogUnavailable, TimeoutError) as error:
                    logs.warn("slot_unread", request_id=lease.request_id, error=error)
                    await asyncio.sleep(RETRY)
                    continue
                said = spoken[lease.request_id]
                if said.fold.attempt > lease.attempt:
                    logs.info("superseded", request_id=lease.request_id, offset=opened.offset)
                    return
                self._output(lease, ending, said)
                return

    def _open(self, lease: Lease) -> Outgoing:
        event = Open(
            request_id=lease.request_id,
            attempt=lease.attempt,
            worker=lease.worker,
            epoch=lease.epoch,
            silent=True,
        )
        headers = headers_of(
            tag_of(event),
            encoding=lease.encoding,
            request_id=lease.request_id,
            attempt=lease.attempt,
            tenant=lease.tenant,
            correlation_id=lease.correlation_id,
        )
        value = encode(event, lease.encoding)
        topics = self.desk.member.topics
        return Outgoing(topics.tokens, value, lease.request_id.encode(), headers=headers)

    def _slot_from(self, case: Case | None, request_id: str) -> int:
        if case is None or case.fold.n == 0:
            return self.desk.slots.of(request_id)
        return case.first.slot_from if case.first is not None else 0  # unreadable: the whole slot

    def _output(self, lease: Lease, ending: Ending, said: Spoken) -> None:
        me = self.desk.member
        output = ending.subject.output(
            lease.attempt,
            ending.outcome,
            ending.error,
            choices=said.choices,
            same_answer=lease.same_answer,
            worker=me.id,
            epoch=me.epoch,
            finished=me.clock.ms(),
            entered=said.entered,
        )
        self.desk.write_ledger(output, attempt=lease.attempt, trace=ending.trace)
        logs.info(
            "ended",
            request_id=lease.request_id,
            outcome=ending.outcome,
            code=ending.error.code if ending.error else None,
            attempt=lease.attempt,
        )

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.desk.fail(error)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
