"""Which implementation of an operator runs on this machine, and why.

One table row per implementation, best first. The first row whose device, flags, plan and format fit
is taken; what an exact row promises is probed when it is chosen.
"""

from dataclasses import dataclass

import torch

from kernels import attention, linear
from kernels.device import DeviceProfile
from kernels.linear import Linear, MakeLinear
from kernels.weights import Weight


@dataclass(frozen=True)
class Chosen:
    attend: attention.Attend
    cache_dtype: torch.dtype
    make: MakeLinear

    def linear(self, weight: Weight, device: torch.device) -> Linear:
        return self.make(weight, device)


def choose_all(profile: DeviceProfile, plan: str) -> Chosen:
    if plan == "reference":
        return Chosen(attention.gather_attention, torch.float32, linear.dense_f32)
    return Chosen(attention.tiled_attention, torch.float32, linear.tiled_f32)
