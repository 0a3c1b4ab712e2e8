"""The wall clock of a real process."""

import time


class WallClock:
    def ms(self) -> int:
        return time.time_ns() // 1_000_000
