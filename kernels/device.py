"""What this machine can do: instruction set, threads, memory, CUDA."""

import math
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

_AMX, _AVX512, _AVX2 = "amx", "avx512", "avx2"


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A device as the operator table sees it.

    `device_type` is what must be equal for the same answer: `cpu-avx2`, `cuda-sm90`.
    `flags` are the instruction sets that an operator may ask for. `memory` in bytes.
    """

    device: str  # "cpu" or "cuda"
    device_type: str
    name: str
    flags: frozenset[str]
    threads: int
    memory: int


def profile(device: str = "cpu") -> DeviceProfile:
    """The profile of `cpu` or `cuda`. Raises ValueError where there is no such device."""
    if device == "cpu":
        return _cpu()
    if device == "cuda" and torch.cuda.is_available():
        return _cuda()
    raise ValueError(f"device {device!r} is not here; use 'cpu' or, with a CUDA GPU, 'cuda'")


@cache
def _cpu() -> DeviceProfile:
    flags = cpu_flags()
    machine = platform.machine().lower()
    if "amx_int8" in flags:
        best = _AMX
    elif "avx512f" in flags:
        best = _AVX512
    elif "avx2" in flags:
        best = _AVX2
    else:
        best = "arm64" if machine in ("aarch64", "arm64") else "generic"
    return DeviceProfile("cpu", f"cpu-{best}", _cpu_name(), flags, threads(), host_memory())


def _cuda() -> DeviceProfile:
    major, minor = torch.cuda.get_device_capability()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    flags = frozenset({"cuda", "bf16"} if major >= 8 else {"cuda"})
    kind = f"cuda-sm{major}{minor}"
    return DeviceProfile("cuda", kind, properties.name, flags, threads(), properties.total_memory)


def cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux: what torch says is all there is
        return frozenset({torch.backends.cpu.get_cpu_capability().lower()})
    for line in lines:
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def threads() -> int:
    """CPUs this process may use at once: the least of its affinity and its cgroup quotas."""
    available = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(available, cgroup_quota(available)))


def cgroup_quota(available: int, root: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs that the cgroup allows, version 2 or 1; `available` where it sets no limit."""
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return available
    if quota in ("max", "-1"):
        return available
    return math.ceil(int(quota) / int(period))


def host_memory() -> int:
    """Bytes that this process may use: physical memory or the cgroup's limit, whichever is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            total = min(total, int((Path("/sys/fs/cgroup") / limit).read_text()))
        except (OSError, ValueError):
            continue  # no such controller, or "max"
    return total
