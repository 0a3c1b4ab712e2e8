"""Which offsets of one partition are done. Pure; one tracker is one assignment.

Records end out of order; what is committed is the lowest incomplete offset. The completed ones above it
go along in the commit's metadata, so that they are skipped after a restart (the idea is Confluent's
Parallel Consumer's). That map is an optimisation: what is read twice must be harmless.
"""

import base64
import binascii
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .log import Commit

MAP_LIMIT = 3072  # characters; the broker takes 4096 of metadata (offset.metadata.max.bytes)
BITS_LIMIT = 8192  # bytes of a map before it is packed: a span of 65,536 offsets


@dataclass(frozen=True, slots=True)
class Notes:
    """What a commit's metadata says beside the offset."""

    done: frozenset[int] = frozenset()  # completed offsets above the committed one
    trying: tuple[int, int] | None = None  # (offset, k): its k-th try had begun, alone
    clean: bool = False  # handed over in order: no process died with records in hand


class Tracker:
    """Offsets must begin in rising order; they end in any."""

    def __init__(
        self,
        start: int,
        *,
        span: int | None = None,
        notes: Notes | None = None,
        keep_map: bool = True,
    ) -> None:
        self.next = start  # one beyond the highest offset begun
        self.span = span  # None: unlimited
        self.keep_map = keep_map
        self.notes = notes or Notes()
        self.trying: tuple[int, int] | None = None
        self.dirty = False  # the watermark moved, or will say more than the last commit
        self._begun: deque[int] = deque()  # from the watermark on, rising
        self._incomplete: set[int] = set()
        self._restored = {offset for offset in self.notes.done if offset >= start}  # not read yet

    @classmethod
    def restore(
        cls, commit: Commit, *, span: int | None = None, keep_map: bool = True
    ) -> "Tracker":
        """Go on where `commit` was written."""
        return cls(
            commit.offset,
            span=span,
            notes=read_notes(commit) if keep_map else _without_map(commit),
            keep_map=keep_map,
        )

    def begin(self, offset: int) -> bool:
        """A record was read. False: it is already done or in hand, leave it alone."""
        if offset < self.next:
            return False
        self.next = offset + 1
        self._begun.append(offset)
        if offset in self._restored:
            self._restored.discard(offset)
            self.dirty = True
            return False
        self._incomplete.add(offset)
        return True

    def done(self, offset: int) -> None:
        """Its outputs are acked. Done twice is done once."""
        if offset in self._incomplete:
            self._incomplete.discard(offset)
            self.dirty = True

    @property
    def watermark(self) -> int:
        """The lowest offset that is not done: what may be committed."""
        while self._begun and self._begun[0] not in self._incomplete:
            self._begun.popleft()
        return self._begun[0] if self._begun else self.next

    @property
    def full(self) -> bool:
        """So much is in flight that nothing more may begin."""
        return self.span is not None and self.next - self.watermark >= self.span

    def __len__(self) -> int:
        """Records begun and not done."""
        return len(self._incomplete)

    def tries(self, offset: int) -> int:
        """How often this record was begun alone before, by processes that then died."""
        trying = self.notes.trying
        return trying[1] if trying is not None and trying[0] == offset else 0

    def commit(self, *, clean: bool = False) -> Commit:
        """What to commit now."""
        watermark = self.watermark
        # beyond what a map can hold, do not even list them
        mapped = self.keep_map and self.next - watermark < 8 * BITS_LIMIT
        done = self._completed(watermark) if mapped else []
        return Commit(watermark, write_notes(watermark, done, self.trying, clean=clean))

    def _completed(self, watermark: int) -> list[int]:
        above = [offset for offset in self._begun if offset not in self._incomplete]
        return above + [offset for offset in self._restored if offset > watermark]


def write_notes(
    watermark: int, done: Sequence[int], trying: tuple[int, int] | None, *, clean: bool = False
) -> str:
    """Metadata `1;d=<map>;t=<offset>:<k>;c`, each part only when it says something.

    The map is base64 of zlib of little-endian bits, bit i being offset watermark + i; a map longer than
    MAP_LIMIT is left out.
    """
    parts = ["1"]
    raw = bytearray()
    above = max(done, default=watermark) - watermark
    if 0 < above < 8 * BITS_LIMIT:
        raw = bytearray(above // 8 + 1)
        for offset in done:
            raw[(offset - watermark) >> 3] |= 1 << (offset - watermark & 7)
    if raw:
        text = base64.b64encode(zlib.compress(raw, 1)).decode()
        if len(text) <= MAP_LIMIT:
            parts.append(f"d={text}")
    if trying is not None:
        parts.append(f"t={trying[0]}:{trying[1]}")
    if clean:
        parts.append("c")
    return ";".join(parts)


def read_notes(commit: Commit) -> Notes:
    """The notes of a commit; another program's metadata says nothing to us."""
    version, *parts = commit.metadata.split(";")
    if version != "1":
        return Notes()
    done: frozenset[int] = frozenset()
    trying: tuple[int, int] | None = None
    try:
        for part in parts:
            if part.startswith("d="):
                done = _unpack(part[2:], commit.offset)
            elif part.startswith("t="):
                offset, _, k = part[2:].partition(":")
                trying = (int(offset), int(k))
    except (ValueError, binascii.Error, zlib.error):
        return Notes()
    return Notes(done, trying, "c" in parts)


def _without_map(commit: Commit) -> Notes:
    notes = read_notes(commit)
    return Notes(trying=notes.trying, clean=notes.clean)


def _unpack(text: str, watermark: int) -> frozenset[int]:
    raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), BITS_LIMIT)
    return frozenset(
        watermark + 8 * index + bit
        for index, byte in enumerate(raw)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    )
