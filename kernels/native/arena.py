"""One piece of memory for all packed weights, on huge pages where the system has them."""

import mmap

import numpy as np

from kernels.gguf import Bytes

_ALIGN = 64  # a cache line


class Arena:
    """Grows by pieces; what was put in stays where it is until the arena goes."""

    def __init__(self, piece: int = 64 << 20) -> None:
        self._piece = piece
        self._maps: list[mmap.mmap] = []
        self._room = self._at = 0
        self.used = 0  # bytes of weights

    def put(self, values: Bytes) -> int:
        """Copy flat bytes in; gives their address."""
        if self._at + values.size > self._room:
            self._grow(max(self._piece, values.size + _ALIGN))
        target = np.frombuffer(self._maps[-1], np.uint8, values.size, self._at)
        target[:] = values
        self._at += -(-values.size // _ALIGN) * _ALIGN
        self.used += values.size
        return int(target.ctypes.data)

    def _grow(self, size: int) -> None:
        # private: Linux puts shared memory on huge pages only where it was set up to do so
        piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            piece.madvise(mmap.MADV_HUGEPAGE)
        self._maps.append(piece)
        self._room, self._at = size, 0
