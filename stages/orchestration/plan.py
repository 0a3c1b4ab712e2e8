"""Which worker, and why. Pure.

Pins first (model revision, plan, device type): they are what "same answer" rests on, and are broken only
when no live worker keeps them. Among those left: the worker whose turn it is for the request's prefix,
as long as its load allows, else the least loaded one.

Source of the choice by prefix: V. Mirrokni, M. Thorup, M. Zadimoghaddam, "Consistent Hashing with
Bounded Loads", 2018, here over rendezvous hashes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from schemas.work import Ready

from .fleet import Hand

BOUND = 0.25  # of its slots that the prefix's worker may be fuller than the emptiest


@dataclass(frozen=True, slots=True)
class Plan:
    hand: Hand
    why: str
    same_answer: bool  # every pin is kept


def choose(
    ready: Ready,
    hands: Sequence[Hand],
    orchestrator: str,
    *,
    device_type: str | None = None,
    devices: Sequence[str] = (),
    avoid: str | None = None,
    kept: bool = True,
) -> Plan | None:
    """The worker for one attempt; None when nobody who may do it has a credit.

    `hands`: usable workers of the model. `device_type`: where an earlier attempt ran. `devices`: what
    the registry allows, empty: any. `avoid`: the epoch that just gave it back, taken only if there is
    no other. `kept`: no earlier attempt broke a pin.
    """
    allowed = [hand for hand in hands if allows(devices, hand.figures.device_type)]
    pinned = [h for h in allowed if keeps_pins(ready, h, device_type)]
    able = pinned or allowed
    others = [h for h in able if h.epoch != avoid]
    free = [h for h in others or able if h.free(orchestrator) > 0]
    if not free:
        return None
    hand, why = _turn(ready.affinity, free)
    if not pinned:
        why += ", breaking a pin: no live worker keeps it"
    return Plan(hand, why, bool(pinned) and kept)


def allows(devices: Sequence[str], device_type: str) -> bool:
    """`devices` names kinds (`cpu`) and types (`cpu-avx2`); none: any will do."""
    return not devices or device_type in devices or device_type.partition("-")[0] in devices


def keeps_pins(ready: Ready, hand: Hand, device_type: str | None) -> bool:
    wanted = device_type or ready.device_type
    figures = hand.figures
    return (
        figures.revision == ready.revision
        and figures.plan == ready.plan
        and (wanted is None or figures.device_type == wanted)
    )


def _turn(affinity: str, free: Sequence[Hand]) -> tuple[Hand, str]:
    if len(free) == 1:
        return free[0], "the only one free"
    loads = {hand.epoch: hand.load for hand in free}
    least = min(loads.values())
    if affinity:
        near = [hand for hand in free if loads[hand.epoch] <= least + BOUND]
        holders = [hand for hand in near if affinity in hand.figures.prefixes]
        if holders:
            return min(holders, key=lambda hand: loads[hand.epoch]), "holds the prefix"
        return max(near, key=lambda hand: _weight(affinity, hand)), "next for the prefix"
    return min(free, key=lambda hand: (loads[hand.epoch], hand.id)), "least loaded"


def _weight(affinity: str, hand: Hand) -> int:
    return crc32(f"{affinity}/{hand.id}".encode())


def too_late(ready: Ready, hands: Sequence[Hand], now: int) -> bool:
    """Whether even the least that must be decoded ends after the deadline on the fastest worker.

    The least: `max_tokens` where the end token is ignored, else `min_tokens`. A worker that has not
    decoded yet has no rate, and nothing is refused because of it.
    """
    sampling = ready.sampling
    least = ready.max_tokens if sampling.ignore_eos else sampling.min_tokens
    if least <= 1:
        return False
    speeds = [hand.figures.rate for hand in hands]
    fastest = max(speeds, default=0.0)
    return bool(hands) and min(speeds) > 0 and now + 1000 * least / fastest > ready.deadline
