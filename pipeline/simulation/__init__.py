"""Virtual time: the very code that production runs, without waiting, and the same for the same seed."""

from .loop import VirtualClock, VirtualLoop, run_virtual

__all__ = ["VirtualClock", "VirtualLoop", "run_virtual"]
