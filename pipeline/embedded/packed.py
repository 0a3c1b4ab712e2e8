"""The answer to Fetch version 11, which most clients ask, packed by the partition.

Field by field through kio it is most of what a fetch costs, and most partitions have nothing new.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

FETCH, VERSION = 1, 11
_HEAD = struct.Struct(">iiihii")  # length, correlation, throttle, error, session, topics
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
# partition, error, high watermark, last stable, log start, aborted, preferred replica, length
_PARTITION = struct.Struct(">ihqqqiii")
_NONE = -1


def fetched(correlation: int, answer: Mapping[str, Any]) -> bytes:
    """The frame, with its length, of an answer as `handle_fetch` gives it."""
    topics = answer["responses"]
    parts = [b""]
    for topic in topics:
        name, partitions = topic["topic"].encode(), topic["partitions"]
        parts += (_SHORT.pack(len(name)), name, _INT.pack(len(partitions)))
        for partition in partitions:
            records = partition["records"]
            state = _PARTITION.pack(
                partition["partition_index"],
                partition.get("error_code", 0),
                partition["high_watermark"],
                partition.get("last_stable_offset", _NONE),
                partition.get("log_start_offset", _NONE),
                _NONE if partition["aborted_transactions"] is None else 0,
                _NONE,
                len(records),
            )
            parts += (state, records)
    length = _HEAD.size - _INT.size + sum(map(len, parts))
    parts[0] = _HEAD.pack(length, correlation, 0, answer.get("error_code", 0), 0, len(topics))
    return b"".join(parts)
