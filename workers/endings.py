"""How a run can end: the first ending of a run stays."""

from dataclasses import dataclass
from typing import Literal

from schemas.errors import CODES, Error
from workers.job import Failure


@dataclass(frozen=True, slots=True)
class Ending:
    """`output` with an outcome, `released` with a reason, or `superseded`: nothing is written."""

    kind: Literal["output", "released", "superseded"]
    outcome: str = ""
    error: Error | None = None
    why: str = ""
    detail: str = ""


COMPLETED = Ending("output", "completed")
SUPERSEDED = Ending("superseded")


def released(why: str, detail: str = "") -> Ending:
    return Ending("released", why=why, detail=detail)


def cancelled() -> Ending:
    return _ended("cancelled", "request_cancelled", "the request was cancelled")


def expired(message: str = "the deadline passed while it ran") -> Ending:
    return _ended("expired", "deadline_exceeded", message)


def failed(failure: Failure) -> Ending:
    """An engine gave a job up: another attempt may help, or it ends here."""
    if failure.retryable:
        return released("fault", f"{failure.code}: {failure.message}")
    if failure.code == "never_fits":
        return _ended("refused", "never_fits", failure.message)
    return _ended("failed", "engine_error", failure.message)


def _ended(outcome: str, code: str, message: str) -> Ending:
    error = Error(message=message, type=CODES[code].type, code=code)
    return Ending("output", outcome, error)
