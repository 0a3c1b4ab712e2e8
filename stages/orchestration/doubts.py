"""Unknown is not none: before a lease(1) is written or counted of a request that may have ended before
we began to read, the log is asked, once for all that are in doubt."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pipeline import logs
from pipeline.history import SKEW, spoken_of_since
from pipeline.log import LogUnavailable
from pipeline.lookup import ScanBudget, find_ledger

from .books import Books, Case
from .desk import Desk, Ending
from .endings import Endings
from .ledger import Ledger
from .queue import Waiting

STRIDE = 60_000  # ms read further back than asked: who asks next is often a little older
RETRY = 0.5  # s between tries while no broker answers


@dataclass(frozen=True, slots=True)
class _Question:
    partition: int
    request_id: str
    accepted: int  # ms; a lower bound
    answer: Callable[[bool], None]  # whether it has ended


class Doubts:
    def __init__(self, desk: Desk, ledger: Ledger, endings: Endings) -> None:
        self.desk = desk
        self.ledger = ledger
        self.endings = endings
        self._questions: list[_Question] = []
        self._cases: set[str] = set()  # open cases that are being asked about
        self._asked = asyncio.Event()

    def known(self, books: Books, request_id: str) -> bool:
        """Whether the books say that it is leased or has ended."""
        case = books.cases.get(request_id)
        return request_id in books.ended or (case is not None and case.fold.n > 0)

    def ask(self, item: Waiting, lane: str, accept: Callable[[Waiting, str], None]) -> None:
        """A ready record of a request that may have ended."""
        request_id = item.ready.request_id

        def answer(ended: bool) -> None:
            if ended or self.known(self.desk.books[item.partition], request_id):
                item.complete()
            else:
                accept(item, lane)

        since = spoken_of_since(request_id, item.ready.accepted)
        self._put(_Question(item.partition, request_id, since, answer))

    def end(self, ending: Ending) -> None:
        """End a request that no attempt has touched, if it has not ended."""
        subject = ending.subject
        partition = self.desk.partition(subject.request_id)
        complete = ending.complete or (lambda: None)

        def answer(ended: bool) -> None:
            if ended or self.known(self.desk.books[partition], subject.request_id):
                complete()
            else:
                self.endings.begin(ending)

        books = self.desk.books[partition]
        since = spoken_of_since(subject.request_id, subject.accepted)
        if not books.history.doubtful(subject.request_id, since):
            answer(False)
        else:
            self._put(_Question(partition, subject.request_id, since, answer))

    def resolve(self, case: Case, then: Callable[[Case], None]) -> None:
        """An open case whose first record may be a stray of one that has ended."""

        if case.request_id in self._cases:
            return

        def answer(ended: bool) -> None:
            self._cases.discard(case.request_id)
            books = self.desk.books[case.partition]
            if books.cases.get(case.request_id) is not case:
                return
            if ended:
                books.end(case, self.desk.member.clock.ms())
            else:
                case.doubtful = False
                then(case)

        self._cases.add(case.request_id)
        self._put(_Question(case.partition, case.request_id, case.accepted, answer))

    def _put(self, question: _Question) -> None:
        self._questions.append(question)
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            questions, self._questions = self._questions, []
            by_partition: dict[int, list[_Question]] = {}
            for question in questions:
                by_partition.setdefault(question.partition, []).append(question)
            for partition, asked in by_partition.items():
                books = self.desk.books.get(partition)
                if books is None:  # its new owner asks
                    self._cases.difference_update(question.request_id for question in asked)
                    continue
                try:
                    await self._answer(books, asked)
                except (LogUnavailable, ScanBudget) as error:
                    logs.warn("look_up", partition=partition, requests=len(asked), error=error)
                    await asyncio.sleep(RETRY)
                    for question in asked:
                        self._put(question)

    async def _answer(self, books: Books, asked: list[_Question]) -> None:
        oldest = min(question.accepted for question in asked)
        if oldest < books.history.floor:
            await self.ledger.reach(books, oldest - STRIDE)
        for question in list(asked):
            ended = question.request_id in books.ended
            if not ended and books.history.maybe(question.request_id):
                ended = await self._ended(question)
            if self.desk.books.get(books.partition) is not books:
                self._cases.difference_update(question.request_id for question in asked)
                return
            asked.remove(question)
            question.answer(ended)

    async def _ended(self, question: _Question) -> bool:
        """The log itself: the filter may be wrong, one time in a million."""
        member = self.desk.member
        found = await find_ledger(
            member.log, member.topics, question.request_id, since_ms=question.accepted - SKEW
        )
        return found is not None and found[0].ended
