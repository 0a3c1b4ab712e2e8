"""What can go wrong: refusals that a client gets as an error code, and faults of our own."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as Code

__all__ = ["Code", "Refused", "StartError", "StorageError"]


class Refused(Exception):
    """A request, or one part of it, that the broker answers with an error code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StorageError(Exception):
    """The disk did not take a write; nothing of it was kept. It may succeed later."""


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""
