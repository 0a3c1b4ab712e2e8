"""Lengths and counts of a request checked before kio reads it.

kio's native readers set memory aside for as many items as an array claims to have, and the
process ends when there is not that much. So a request is walked once along its schema first:
no length may point past its end, and no request may hold more items than an honest one does.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from typing import Any, NamedTuple, get_args, get_origin

_ITEMS_MOST = 100_000  # in all arrays of one request together: some 20 MB when decoded
_FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class Malformed(Exception):
    """Bytes that are no request this broker knows; the connection ends, as with Kafka."""


class _Step(NamedTuple):
    """What comes next: `size` bytes, or a "string", "bytes", "array" or "tags" of any length."""

    kind: str
    size: int = 0
    items: tuple[_Step, ...] = ()


@functools.cache
def plan(entity: Any) -> tuple[_Step, ...]:
    """The steps through one kio entity."""
    steps: list[_Step] = []
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            continue
        kind: str = field.metadata.get("kafka_type", "")
        if (item := _item(field.type)) is not None:
            inner = (_primitive(kind),) if kind else plan(item)
            steps.append(_Step("array", items=inner))
        elif steps and steps[-1].kind == "fixed" and kind in _FIXED:
            steps[-1] = _Step("fixed", steps[-1].size + _FIXED[kind])
        else:
            steps.append(_primitive(kind))
    if entity.__flexible__:
        steps.append(_Step("tags"))
    return tuple(steps)


def _item(annotation: Any) -> Any:
    """The item type of an array, or None for anything else."""
    for each in (annotation, *get_args(annotation)):
        if get_origin(each) is tuple:
            return get_args(each)[0]
    return None


def _primitive(kind: str) -> _Step:
    if kind in _FIXED:
        return _Step("fixed", _FIXED[kind])
    return _Step("string" if kind == "string" else "bytes")


class Walk:
    """One way through a frame, from `at` on."""

    def __init__(self, frame: bytes, at: int, *, flexible: bool) -> None:
        self.frame = frame
        self.at = at
        self._flexible = flexible
        self._items = 0

    def through(self, steps: tuple[_Step, ...]) -> None:
        """Raises `Malformed` unless everything the steps lead to is inside the frame."""
        for kind, size, items in steps:
            if kind == "fixed":
                self.at += size
            elif kind == "array":
                self._array(items)
            elif kind == "tags":
                self.tags()
            else:
                self._skip(self._length(kind))
        if self.at > len(self.frame):
            raise Malformed("the request is cut short")

    def _array(self, items: tuple[_Step, ...]) -> None:
        count = self._length("array")
        self._items += max(count, 0)
        if self._items > _ITEMS_MOST or count > len(self.frame) - self.at:
            raise Malformed(f"an array of {count} items")
        for _ in range(count):
            self.through(items)

    def tags(self) -> None:
        """Tagged fields: a count, then tag, size and value of each."""
        for _ in range(self._varint()):
            self._varint()
            self._skip(self._varint())

    def string(self) -> bytes | None:
        """A string with a length of two bytes, as headers have it even where all else is compact."""
        length = self._unpack(_SHORT)
        start = self.at
        self._skip(length)
        return None if length < 0 else self.frame[start : self.at]

    def _length(self, kind: str) -> int:
        """Length or count; -1 for null."""
        if self._flexible:
            return self._varint() - 1
        length = self._unpack(_SHORT if kind == "string" else _INT)
        if length < -1:
            raise Malformed(f"a length of {length}")
        return length

    def _skip(self, length: int) -> None:
        self.at += max(length, 0)
        if self.at > len(self.frame):
            raise Malformed(f"a length of {length} points past the end")

    def _unpack(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self.frame, self.at)
        except struct.error as error:
            raise Malformed("the request is cut short") from error
        self.at += layout.size
        return int(value)

    def _varint(self) -> int:
        value = shift = 0
        while shift < 35:
            if self.at >= len(self.frame):
                raise Malformed("the request is cut short")
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Malformed("a number longer than five bytes")
