"""Wake-ups on `hr.control`: none is an obligation, so each is repeated until it has worked."""

from pipeline.log import Outgoing
from schemas.codec import encode, headers_of, tag_of
from schemas.control import Wake

from .books import Case
from .desk import Desk
from .judge import for_itself

EVERY = 0.9  # s between two wake-ups of one request: about a heartbeat


class Wakes:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._sent: dict[str, float] = {}  # request id → loop time

    def stop(self, case: Case, outcome: str, now: float) -> None:
        """The holder shall stop within one step and write how it ended."""
        if now - self._sent.get(case.request_id, -EVERY) >= EVERY:
            self._sent[case.request_id] = now
            self._send(Wake(request_id=case.request_id, attempt=case.fold.n, outcome=outcome))

    def superseded(self, case: Case) -> None:
        """A higher lease counts: who still runs a lower attempt drops it and frees its device."""
        held = case.holders.get(case.fold.n - 1)
        if held is not None and not for_itself(held) and case.fold.n - 1 not in case.given_back:
            self._send(Wake(request_id=case.request_id, attempt=case.fold.n - 1, superseded=True))

    def forget(self, request_id: str) -> None:
        self._sent.pop(request_id, None)

    def _send(self, wake: Wake) -> None:
        headers = headers_of(tag_of(wake), request_id=wake.request_id, attempt=wake.attempt)
        key = wake.request_id.encode()
        self.desk.send(Outgoing(self.desk.member.topics.control, encode(wake), key, 0, headers))
