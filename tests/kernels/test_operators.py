"""Every operator of the table agrees with its reference, and the table says why it was taken."""

import re
from pathlib import Path

import pytest
import torch

from kernels import operators
from kernels.batch import Row, pack
from kernels.config import from_gguf
from kernels.device import DeviceProfile, cgroup_quota, profile
from kernels.errors import CacheError, PlanError
from kernels.gguf import GGUFFile
from kernels.kv_cache import KVCache
from kernels.linear import dense_f32
from kernels.weights import GGUFWeights, Weight
from tests.kernels import tiny

CPU = torch.device("cpu")
HERE = profile("cpu")
SOME_CPU = DeviceProfile("cpu", "cpu-generic", "some", frozenset(), 1, 1 << 30)
BIG_CPU = DeviceProfile(
    "cpu", "cpu-avx512", "big", frozenset({"avx2", "avx512f", "avx512_bf16"}), 8, 1 << 34
)
GPU = DeviceProfile("cuda", "cuda-sm90", "gpu", frozenset({"cuda", "bf16"}), 8, 1 << 36)


@pytest.fixture(scope="module")
def weight(tmp_path_factory: pytest.TempPathFactory) -> Weight:
    path = tiny.write_gguf(tmp_path_factory.mktemp("made") / "t.gguf", "llama", "Q4_1")
    file = GGUFFile(path)
    return GGUFWeights(file, from_gguf(path, file.metadata)).read("blk.0.ffn_gate.weight")


# largest relative error of a product with unit-normal rows; bf16 keeps 8 bits
TOLERANCE = {"int4pack": 2e-2, "tiled-fp32": 1e-5, "reference": 0.0, "bf16": 2e-2}


@pytest.mark.parametrize("name", TOLERANCE)
@pytest.mark.parametrize("rows", [1, 5, 16, 40])
def test_every_linear_of_torch_agrees_with_the_reference(
    name: str, rows: int, weight: Weight
) -> None:
    row = next(o for o in operators.TABLE if o.op == "linear" and o.name == name)
    assert row.make is not None
    x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(1))
    wanted, found = dense_f32(weight, CPU)(x), row.make(weight, CPU)(x)
    assert (found - wanted).norm() <= TOLERANCE[name] * wanted.norm()


def test_the_table_serves_every_format_everywhere() -> None:
    for device in (SOME_CPU, BIG_CPU, GPU):
        for plan in ("exact", "fast"):
            for kind in operators.QUANTISED | operators.DENSE:
                operators.choose("linear", kind, device, plan, native=False)
            operators.choose("attention", "F32", device, plan, native=False)


def test_choices_by_machine_and_plan() -> None:
    def name(kind: str, device: DeviceProfile, plan: str, native: bool) -> str:
        return operators.choose("linear", kind, device, plan, native=native).operator.name

    assert name("Q4_1", SOME_CPU, "exact", True) == "native-int8"
    assert name("F16", SOME_CPU, "exact", True) == "native-dense"
    assert name("Q4_1", SOME_CPU, "exact", False) == "tiled-fp32"
    assert name("Q4_1", BIG_CPU, "exact", False) == "bf16"
    assert name("Q4_1", BIG_CPU, "fast", False) == "int4pack+bf16"
    assert name("Q8_0", GPU, "exact", False) == "cuda-bf16"
    assert name("Q4_1", SOME_CPU, "reference", True) == "reference"


def test_what_was_passed_over_has_a_reason() -> None:
    choice = operators.choose("linear", "Q4_1", SOME_CPU, "exact", native=False)
    reasons = dict(choice.passed_over)
    assert reasons["native-int8"] == "needs a C++ compiler"
    assert "avx512_bf16" in reasons["bf16"]
    assert reasons["int4pack"] == "needs avx2"
    for found in operators.describe(HERE):
        assert found.operator.why
    with pytest.raises(PlanError, match="no linear for Q4_1"):
        operators.choose("linear", "Q4_1", SOME_CPU, "quick")


def test_an_operator_whose_rows_depend_on_their_company_is_found_out(weight: Weight) -> None:
    honest = dense_f32(weight, CPU)

    def swayed(x: torch.Tensor) -> torch.Tensor:
        return honest(x) + (1e-6 if x.shape[0] > 4 else 0.0)

    assert not operators.rows_are_independent(swayed, weight)


def test_the_page_on_adding_an_operator_runs(weight: Weight) -> None:
    page = (Path(__file__).parents[2] / "docs" / "add-an-operator.md").read_text()
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "add-an-operator.md", "exec"), names)
    make = names["dense_f16"]
    x = torch.randn(3, weight.shape[1])
    wanted = dense_f32(weight, CPU)(x)
    assert callable(make)
    assert (make(weight, CPU)(x) - wanted).norm() < 1e-2 * wanted.norm()
    row = names["ROW"]
    assert isinstance(row, operators.Operator)
    assert row.refusal(HERE, HERE.flags, "fast") is None


def test_a_cache_of_a_wrong_size_is_refused(tmp_path: Path) -> None:
    path = tiny.write_gguf(tmp_path / "t.gguf")
    config = from_gguf(path, GGUFFile(path).metadata)
    with pytest.raises(CacheError, match="block size 20"):
        KVCache(config, 4, 20, torch.float32)
    with pytest.raises(CacheError, match="0 blocks"):
        KVCache(config, 0, 16, torch.float32)
    with pytest.raises(CacheError, match="do not hold 17 tokens"):
        pack([Row(list(range(17)), 0, [0])], 16)


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1)]
)
def test_threads_obey_the_cgroup(text: str, cpus: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cgroup_quota(8, tmp_path) == cpus
    assert HERE.threads >= 1 and HERE.device_type.startswith("cpu-")
