"""The log in one process, deterministic: for the simulation, for tests of stages, for replay.

Under a virtual-time event loop it takes no wall time, and the same seed gives the same schedule: no
threads, no wall clock, no randomness of its own, no iteration over sets.
"""

from .cluster import MemoryCluster
from .connection import MemoryLog
from .faults import Fate

__all__ = ["Fate", "MemoryCluster", "MemoryLog"]
