"""The engine's own CPU kernels: C++ without torch's headers, built at first use, called by ctypes.

One arithmetic for every number of rows, and for every instruction set that has fused
multiply-add: sums run in an order that neither the batch nor the vector width changes.
"""

import ctypes
import logging
from functools import cache

from kernels.native.build import NativeBuildError, build, load
from kernels.native.selftest import is_sound

log = logging.getLogger("headrace.kernels")


@cache
def library() -> ctypes.CDLL | None:
    """The native kernels for this CPU, or None (said once, with the reason)."""
    try:
        found = load(build())
    except (NativeBuildError, OSError) as error:
        log.warning("native kernels are off, torch operators are used instead: %s", error)
        return None
    if not is_sound(found):
        log.error(
            "native kernels (%s) compute wrong products on this CPU and are off; torch operators "
            "are used instead. Please report it",
            found.headrace_dots().decode(),
        )
        return None
    return found
