"""How full this worker's memory is: the device's by NVML, otherwise the machine's or the container's."""

from collections.abc import Callable
from pathlib import Path

import psutil

from pipeline import logs

_CGROUP = Path("/sys/fs/cgroup")


def memory_gauge(device: str) -> Callable[[], float]:
    """A function that gives the used share of the device's memory, 0 to 1."""
    if device.startswith("cuda"):
        gauge = _nvml(int(device.partition(":")[2] or 0))
        if gauge is not None:
            return gauge
    limit = _cgroup_limit()
    if limit is None:
        return lambda: psutil.virtual_memory().percent / 100
    usage = _CGROUP / "memory.current"
    return lambda: min(1.0, int(usage.read_text()) / limit)


def _nvml(index: int) -> Callable[[], float] | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        logs.warn("nvml", error=error)
        return None

    def used() -> float:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return float(info.used / info.total)

    return used


def _cgroup_limit() -> int | None:
    """Bytes that the container may use; None without cgroup v2 or without a limit."""
    try:
        text = (_CGROUP / "memory.max").read_text().strip()
        (_CGROUP / "memory.current").read_text()
    except OSError:
        return None
    return None if text == "max" else int(text)
