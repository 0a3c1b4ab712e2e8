"""Waiting for something to become true, with an end."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: Callable[[], T], limit: float = 60, every: float = 0.05) -> T:
    """Ask until the answer is true, and give it. Raises TimeoutError with the last answer."""
    deadline = time.monotonic() + limit
    while not (found := what()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {found!r} after {limit:.0f} s")
        time.sleep(every)
    return found
