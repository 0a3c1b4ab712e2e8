"""Philox4x32-10, a counter-based generator (Salmon et al. 2011), over arrays.

A number is a pure function of (seed, position, stream): nothing to store, nothing to advance, and
an attempt that continues elsewhere draws what the first one would have drawn.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # the paper's multipliers
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # and its key increments
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_ROUNDS = 10

Words = npt.NDArray[np.uint64]


def philox4x32(counter: Sequence[Words], key: Sequence[Words]) -> tuple[Words, ...]:
    """Four 32-bit words from four of counter and two of key, each an array of uint64 below 2³²."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def uniform(
    seeds: Sequence[int], positions: Sequence[int], streams: Sequence[int]
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) a row, with 53 random bits."""
    seed = np.array([s % 2**64 for s in seeds], np.uint64)
    position = np.array(positions, np.uint64)
    stream = np.array(streams, np.uint64)
    counter = (position & _LOW, position >> _32, stream & _LOW, np.zeros_like(seed))
    first, second, _, _ = philox4x32(counter, (seed & _LOW, seed >> _32))
    bits = ((first << _32) | second) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
