"""What the engine asks of a model on a device, without knowing either."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workers.job import TokenLogprob
from workers.planner import Work


class DeviceLost(Exception):
    """The device, or its context, is gone: no step can succeed any more. The process has to end."""


class DeviceOutOfMemory(Exception):
    """A step needed more memory than there is. A smaller step may succeed."""


@dataclass(slots=True)
class Draws:
    """Drawn tokens, in the order of the works and of the draws in each."""

    ids: list[int]
    finite: list[bool]  # False: the logits were NaN or infinite, the id means nothing
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)  # by index, where asked for


class Runner(Protocol):
    """A model with its KV cache."""

    device_type: str  # as the operator table names it: `cpu-avx2`, `cuda-sm90`
    revision: str  # of the weights; blocks of different revisions are never mixed
    context: int  # tokens a sequence may have
    vocab_size: int
    eos_ids: frozenset[int]
    draft_cost: float  # what one more token adds to a step of one, as a share of that step

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; control tokens have none."""

    def run(self, work: Sequence[Work]) -> Draws:
        """One forward and its draws. Writes the keys and values of every token of `work`.

        Raises DeviceOutOfMemory, DeviceLost, or whatever a kernel raises; then nothing was drawn.
        """

    def swap_out(self, blocks: Sequence[int], tokens: int) -> object | None:
        """Copy the keys and values of `tokens` tokens to host memory; None: computing them again is
        cheaper, or there is no room."""

    def swap_in(self, swapped: object, blocks: Sequence[int]) -> None:
        """Copy them back into other blocks and let go of the host memory."""

    def drop(self, swapped: object) -> None:
        """Let go of the host memory of a sequence that ended while it was swapped out."""
