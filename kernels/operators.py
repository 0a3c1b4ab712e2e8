"""Which implementation of an operator runs on this machine, and why.

One row per implementation, best first; the first one that fits device, instruction sets, plan and
weight format is taken. Rows that promise exactness outside the native kernels are probed with real
weights before they are believed. A new implementation is a function and a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernels import attention, linear
from kernels.device import DeviceProfile
from kernels.errors import PlanError
from kernels.linear import Linear, MakeLinear
from kernels.native import library
from kernels.weights import Weight

QUANTISED = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
DENSE = frozenset({"F32", "F16", "BF16"})
INT4 = frozenset({"Q4_0", "Q4_1"})
SERVING = frozenset({"exact", "fast"})
_NATIVE = "native"  # stands among the flags: the library could be built


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A row of the table. `rows` is the range of rows it is meant for, `dtype` its activations'."""

    op: str  # "linear" or "attention"
    name: str
    device: str
    why: str
    flags: tuple[str, ...] = ()  # each needed; "a|b": one of them
    plans: frozenset[str] = SERVING
    formats: frozenset[str] = QUANTISED | DENSE
    rows: str = "any"
    dtype: str = "fp32"
    exact: bool = True
    multiple: int = 1  # a weight's rows must be a multiple of it
    make: MakeLinear | None = None  # None: part of the native program
    attend: attention.Attend | None = None

    def refusal(self, profile: DeviceProfile, flags: frozenset[str], plan: str) -> str | None:
        """Why this row cannot serve here; None where it can."""
        if self.device != profile.device:
            return f"needs {self.device}"
        if plan not in self.plans:
            return f"not in plan {plan}"
        for need in self.flags:
            if not flags & frozenset(need.split("|")):
                return "needs a C++ compiler" if need == _NATIVE else f"needs {need}"
        return None


def _int4_or_bf16(weight: Weight, device: torch.device) -> Linear:
    few, many = linear.int4pack(weight, device), linear.dense_bf16(weight, device)
    return linear.by_rows(few, many, limit=16)


TABLE: tuple[Operator, ...] = (
    Operator(op="linear", name="native-int8", device="cpu", flags=(_NATIVE,), formats=QUANTISED,
             dtype="int8 by groups of 32",
             why="reads the file's integers, exact integer sums, one order for every number of rows"),
    Operator(op="linear", name="native-dense", device="cpu", flags=(_NATIVE,), formats=DENSE,
             why="one order of sums for every number of rows"),
    Operator(op="linear", name="int4pack+bf16", device="cpu", formats=INT4, dtype="bf16",
             flags=("avx512_bf16|amx_bf16",), plans=frozenset({"fast"}), exact=False,
             multiple=16, rows="int4 up to 16, bf16 above", make=_int4_or_bf16,
             why="int4 reads least, bf16 computes fastest; the two round differently"),
    Operator(op="linear", name="bf16", device="cpu", flags=("avx512_bf16|amx_bf16",), dtype="bf16",
             make=linear.dense_bf16, why="the CPU multiplies bf16 itself"),
    Operator(op="linear", name="int4pack", device="cpu", flags=("avx2",), formats=INT4,
             dtype="bf16", multiple=16, make=linear.int4pack, why="torch's int4 kernel, no requantising"),
    Operator(op="linear", name="tiled-fp32", device="cpu", make=linear.tiled_f32,
             why="runs everywhere: one shape for BLAS, so one order of sums"),
    Operator(op="linear", name="cuda-bf16", device="cuda", dtype="bf16", make=linear.dense_bf16,
             exact=False, why="tensor cores; cuBLAS may choose by the number of rows"),
    Operator(op="linear", name="reference", device="cpu", plans=frozenset({"reference"}),
             exact=False, make=linear.dense_f32, why="plain fp32, what the others are tested against"),
    Operator(op="attention", name="native-paged", device="cpu", flags=(_NATIVE,), dtype="fp16 cache",
             why="reads blocks in place, positions in order"),
    Operator(op="attention", name="tiled-sdpa", device="cpu", attend=attention.tiled_attention,
             why="gathered blocks, tiles at fixed positions: the same shape in every chunking"),
    Operator(op="attention", name="varlen", device="cuda", dtype="bf16 cache",
             attend=attention.varlen_attention, why="torch's paged flash attention, num_splits=1"),
    Operator(op="attention", name="reference", device="cpu", plans=frozenset({"reference"}),
             exact=False, attend=attention.gather_attention, why="plain SDPA by sequence"),
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What was taken for one operator and format, and what was passed over for which reason."""

    op: str
    format: str
    operator: Operator
    passed_over: tuple[tuple[str, str], ...]


def has_native(profile: DeviceProfile) -> bool:
    return profile.device == "cpu" and library() is not None


def choose(
    op: str, kind: str, profile: DeviceProfile, plan: str, *, native: bool | None = None
) -> Choice:
    """The first row that fits. `native` False leaves the native rows out. Raises PlanError."""
    with_native = has_native(profile) if native is None else native
    flags = profile.flags | ({_NATIVE} if with_native else frozenset())
    passed: list[tuple[str, str]] = []
    for row in TABLE:
        if row.op != op or kind not in row.formats:
            continue
        refusal = row.refusal(profile, flags, plan)
        if refusal is None:
            return Choice(op, kind, row, tuple(passed))
        passed.append((row.name, refusal))
    raise PlanError(f"no {op} for {kind} on {profile.device_type} in plan {plan!r}")


def describe(profile: DeviceProfile, plan: str = "exact") -> Iterator[Choice]:
    """Every choice on this machine, for people: one per weight format, and attention."""
    for kind in sorted(QUANTISED | DENSE):
        yield choose("linear", kind, profile, plan)
    yield choose("attention", "F32", profile, plan)


class TorchOperators:
    """Torch implementations for one model: chosen by format, exact ones probed on first use."""

    def __init__(self, profile: DeviceProfile, plan: str) -> None:
        self._profile, self._plan = profile, plan
        self._probed: dict[tuple[str, int], MakeLinear] = {}

    def attend(self) -> attention.Attend:
        attend = choose("attention", "F32", self._profile, self._plan, native=False).operator.attend
        if attend is None:
            raise PlanError(f"no attention in torch for plan {self._plan!r}")
        return attend

    def linear(self, weight: Weight, device: torch.device) -> Linear:
        key = (weight.type, weight.shape[0] % 16)
        make = self._probed.get(key)
        if make is not None:
            return make(weight, device)
        for row in TABLE:
            if row.op != "linear" or weight.type not in row.formats or row.make is None:
                continue
            if row.refusal(self._profile, self._profile.flags, self._plan):
                continue
            if weight.shape[0] % row.multiple:
                continue
            run = row.make(weight, device)
            if not (row.exact and self._plan == "exact") or rows_are_independent(run, weight):
                self._probed[key] = row.make
                return run
        raise PlanError(
            f"no linear operator for {weight.type} on {self._profile.device_type} keeps plan "
            f"{self._plan!r}"
        )


def rows_are_independent(run: Linear, weight: Weight) -> bool:
    """Whether a row's bits are the same alone and in company, for the sizes that matter."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, weight.shape[1], generator=generator)
    whole = run(x)
    sizes = (1, 2, 3, 4, 5, 8, 16, 17, 33)
    return all(torch.equal(run(x[-m:].contiguous()), whole[-m:]) for m in sizes)
