"""Answers of two brokers made comparable: kio's dataclasses as plain data, ids and times aside."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any

# What differs from broker to broker and from run to run, or is prose.
MASKED = frozenset(
    {"error_message", "cluster_id", "host", "port", "controller_id", "producer_id", "client_host"}
)
_IDS = frozenset({"member_id", "leader"})


class Plain:
    """Member ids become <1>, <2> … in the order in which they are seen."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __call__(self, value: Any, field: str = "") -> Any:
        if field in MASKED:
            return "*"
        if dataclasses.is_dataclass(value):
            names = (each.name for each in dataclasses.fields(value))
            return {name: self(getattr(value, name), name) for name in names}
        if field in _IDS and value:
            return self._ids.setdefault(value, f"<{len(self._ids) + 1}>")
        if isinstance(value, enum.Enum):
            return value.name
        if isinstance(value, datetime.timedelta):
            return value // datetime.timedelta(milliseconds=1)
        if isinstance(value, tuple | list):
            return [self(item) for item in value]
        if isinstance(value, str | int | float | bytes | bool) or value is None:
            return value
        return str(value)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two plain answers differ, one line each: path, ours, theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = [*ours, *(name for name in theirs if name not in ours)]
        return [
            line
            for name in names
            for line in differences(ours.get(name), theirs.get(name), f"{path}.{name}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for number, pair in pairs for line in differences(*pair, f"{path}[{number}]")]
    return [] if ours == theirs else [f"{path}: {ours!r}, Kafka {theirs!r}"]
