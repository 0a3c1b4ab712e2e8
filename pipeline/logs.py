"""JSON lines on stderr: decision points and faults, never ordinary success, never a prompt.

logs.warn("dead_letter", topic="hr.requests", offset=7, traceparent=span.traceparent)
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from .log import Clock
from .tracing import ids_of

logger = logging.getLogger("headrace")
logger.addHandler(logging.NullHandler())

WITHHELD = frozenset({"prompt", "messages", "content", "text", "body", "value", "pieces"})
FIELD_LIMIT = 500  # characters of one field: an exception may quote a whole record
WINDOW, WINDOW_LINES = 10.0, 50  # a flood of one event writes so many lines in so many seconds


def info(event: str, **fields: Any) -> None:
    _note(logging.INFO, event, fields)


def warn(event: str, **fields: Any) -> None:
    _note(logging.WARNING, event, fields)


def error(event: str, **fields: Any) -> None:
    _note(logging.ERROR, event, fields)


def _note(level: int, event: str, fields: dict[str, Any]) -> None:
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """One object a line; of a library's own record (aiokafka, uvicorn) its message and logger."""

    def __init__(self, who: Mapping[str, str], clock: Clock | None = None) -> None:
        super().__init__()
        self.who = dict(who)
        self.clock = clock

    def format(self, record: logging.LogRecord) -> str:
        time = self.clock.ms() if self.clock else int(record.created * 1000)
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), **self.who}
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        line["event"] = record.getMessage()[:FIELD_LIMIT]
        if fields is None:
            line["logger"] = record.name
        else:
            line.update(_printable(fields))
        if suppressed := getattr(record, "suppressed", 0):
            line["suppressed"] = suppressed
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-4 * FIELD_LIMIT :]
        return msgspec.json.encode(line).decode()


def _printable(fields: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "traceparent":
            shown["trace_id"], shown["span_id"] = ids_of(value)
        elif name in WITHHELD:
            shown[name] = "[withheld]"
        elif value is None or isinstance(value, bool | int | float):
            shown[name] = value
        else:
            shown[name] = str(value)[:FIELD_LIMIT]
    return shown


class FloodLimit(logging.Filter):
    """Lets so many lines of one event through in a window, and says how many it kept back."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}  # event → window's begin, lines

    def filter(self, record: logging.LogRecord) -> bool:
        key = f"{record.name}/{record.msg}"[:200]
        begin, lines = self._seen.get(key, (record.created, 0))
        if record.created - begin >= WINDOW:
            record.suppressed = max(0, lines - WINDOW_LINES)
            begin, lines = record.created, 0
        if len(self._seen) > 1000:  # events have fixed names; a library's messages need not
            self._seen.clear()
        self._seen[key] = (begin, lines + 1)
        return lines < WINDOW_LINES


def configure(
    *,
    member: str,
    role: str,
    epoch: str,
    clock: Clock | None = None,
    level: int = logging.INFO,
    stream: TextIO | None = None,
) -> None:
    """Send every logger of this process to `stream` (stderr) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines({"member": member, "role": role, "epoch": epoch}, clock))
    handler.addFilter(FloodLimit())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logger.setLevel(level)
