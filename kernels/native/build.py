"""Builds the native kernels at first use and loads them.

The library lies in a cache folder under a name that contains everything it depends on: sources,
compiler, flags and the CPU's own flags, so that another machine or version never meets a wrong one.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from kernels.device import cpu_flags

_HERE = Path(__file__).parent
_SOURCES = ("rows.cpp", "attention.cpp", "product.cpp", "program.cpp")
_HEADERS = ("vector.h", "dots.h", "step.h")
# no contraction: where two roundings become one is written in the source, not left to the compiler
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-pthread",
)
_BUILD_LIMIT_S = 300  # a cold build takes about 10 s of one core


class NativeBuildError(Exception):
    """No compiler, or it failed. The message says what to do."""


def load(path: Path) -> ctypes.CDLL:
    """Load a built library and declare its functions."""
    lib = ctypes.CDLL(str(path))
    lib.headrace_run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    lib.headrace_run.restype = ctypes.c_int
    lib.headrace_sizes.argtypes = [ctypes.c_int]
    lib.headrace_sizes.restype = ctypes.c_int
    lib.headrace_dots.restype = ctypes.c_char_p
    return lib


def build(machine: tuple[str, ...] = (), folder: Path | None = None) -> Path:
    """The library's path, compiled if it is not there yet.

    `machine` replaces the flags that choose the instruction set (tests build other ones).
    Raises NativeBuildError.
    """
    compiler = find_compiler()
    machine = machine or _native_flags()
    name = _name(compiler, machine)
    target = (folder or cache_folder()) / name
    if not target.exists():
        _compile(compiler, machine, target)
    return target


def cache_folder() -> Path:
    """$HEADRACE_HOME/cache/native, or the user's cache."""
    home = os.environ.get("HEADRACE_HOME")
    if home:
        return Path(home) / "cache" / "native"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headrace" / "native"


def find_compiler() -> str:
    """Its path. Raises NativeBuildError saying what to install."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return found
    raise NativeBuildError("no C++ compiler (install g++ or clang++, or set CXX)")


def _native_flags() -> tuple[str, ...]:
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native",) if arm else ("-march=native",)


def _name(compiler: str, machine: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for file in (*_SOURCES, *_HEADERS):
        digest.update((_HERE / file).read_bytes())
    version = _run([compiler, "--version"]).stdout
    digest.update("\0".join([version, *machine, *_FLAGS, *sorted(cpu_flags())]).encode())
    return f"kernels-{digest.hexdigest()[:20]}.so"


def _compile(compiler: str, machine: tuple[str, ...], target: Path) -> None:
    """Compile beside the target and move it there: two processes may do so at once."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=target.parent)
    except OSError as error:
        raise NativeBuildError(f"cannot write to {target.parent}: {error}") from error
    made = Path(folder) / target.name
    sources = [str(_HERE / name) for name in _SOURCES]
    command = [compiler, *_FLAGS, *machine, *sources, "-o", str(made)]
    try:
        result = _run(command)
        if result.returncode:
            raise NativeBuildError(f"{compiler} failed: {result.stderr.strip()[-500:]}")
        made.replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeBuildError(f"{command[0]} cannot be run: {error}") from error
