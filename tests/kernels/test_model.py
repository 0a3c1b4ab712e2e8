"""The model computes what its weights say, whatever file they come from."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels import gguf, operators
from kernels.batch import Row, pack
from kernels.config import ARCHITECTURES, from_gguf
from kernels.device import profile
from kernels.layers import read_layer, read_model
from kernels.llama import TorchLlama
from kernels.model import Model, load_model
from kernels.sampling import DrawParams, draw
from kernels.weights import GGUFWeights
from tests.kernels import plain, tiny

IDS = [5, 72, 104, 3, 9, 250, 17, 17, 40, 41, 42, 43, 44, 200, 201, 7, 8, 9, 10, 11]
FORMATS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


def run(model: Model, ids: list[int]) -> torch.Tensor:
    cache = model.new_cache(8, 16)
    return model.forward(pack([Row(ids, 0, [3, 1, 6, 2], logits=len(ids))], 16), cache).clone()


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("plan", ["reference", "exact"])
def test_every_architecture_agrees_with_an_independent_reference(
    arch: str, plan: str, tmp_path: Path
) -> None:
    path = tiny.write_gguf(tmp_path / "tiny.gguf", arch)
    wanted = plain.logits(path, arch, IDS, tiny.HEADS, tiny.KV_HEADS)
    found = run(load_model(path, plan=plan), IDS)
    # the exact plan keeps keys and values in half precision
    tolerance = 1e-4 if plan == "reference" else 5e-3
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_weight_format_agrees_with_its_dequantised_values(kind: str, tmp_path: Path) -> None:
    dim = 256 if kind in tiny.K_QUANTS else tiny.DIM
    path = tiny.write_gguf(tmp_path / "tiny.gguf", "llama", kind, dim=dim, hidden=dim)
    wanted = plain.logits(path, "llama", IDS, tiny.HEADS, tiny.KV_HEADS)
    torch.testing.assert_close(
        run(load_model(path, plan="reference"), IDS), wanted, rtol=0, atol=1e-4
    )
    found = run(load_model(path, plan="exact"), IDS)
    error = (found - wanted).norm() / wanted.norm()
    # activations are rounded to 8 bits where weights are quantised
    assert error < (3e-2 if kind in operators.QUANTISED else 1e-3), error


def test_safetensors_give_the_same_logits_as_the_same_weights_in_gguf(tmp_path: Path) -> None:
    folder = tiny.write_safetensors(tmp_path / "folder", "qwen2")
    other = tiny.write_gguf(tmp_path / "tiny.gguf", "qwen2", "BF16")
    a, b = load_model(folder, plan="reference"), load_model(other, plan="reference")
    torch.testing.assert_close(run(a, IDS), run(b, IDS), rtol=0, atol=1e-5)
    assert a.config.eos_ids == b.config.eos_ids
    assert a.vocabulary.encode("the inner") == b.vocabulary.encode("the inner")
    assert run(load_model(folder), IDS).shape == (len(IDS), tiny.VOCAB)


def test_torch_operators_keep_the_exact_plan_without_a_compiler(tmp_path: Path) -> None:
    path = tiny.write_gguf(tmp_path / "tiny.gguf", "llama", "Q4_1")
    file = gguf.GGUFFile(path)
    config = from_gguf(path, file.metadata)
    source = GGUFWeights(file, config)
    chosen = operators.TorchOperators(profile("cpu"), "exact")
    model = TorchLlama(
        config,
        read_model(source, config),
        [read_layer(source, config, i) for i in range(config.layers)],
        lambda weight: chosen.linear(weight, torch.device("cpu")),
        chosen.attend(),
        torch.device("cpu"),
    )
    native = load_model(path)
    wanted = plain.logits(path, "llama", IDS, tiny.HEADS, tiny.KV_HEADS)
    with torch.inference_mode():
        whole = model.forward(pack([Row(IDS, 0, [1, 2], len(IDS))], 16), _cache(native))
        cache, parts = _cache(native), []
        for at in range(0, len(IDS), 7):
            rows = [Row(IDS[at : at + 7], at, [1, 2], len(IDS[at : at + 7]))]
            rows.append(Row([1, 2, 3], 0, [4], 1))  # company
            parts.append(model.forward(pack(rows, 16), cache)[:-1])
    assert torch.equal(torch.cat(parts), whole)
    assert (whole - wanted).norm() / wanted.norm() < 3e-2


def _cache(model: Model):  # type: ignore[no-untyped-def]
    cache = model.new_cache(8, 16)
    cache.data = cache.data.float()
    return cache


def test_the_real_model_within_1e_4_of_the_independent_reference(
    reference: Model, smollm2: Path
) -> None:
    ids = reference.vocabulary.encode("Water finds its level, and the wheel turns with it.")
    config = reference.config
    wanted = plain.logits(smollm2, "llama", ids, config.heads, config.kv_heads)
    found = run(reference, ids)
    assert (found.log_softmax(-1) - wanted.log_softmax(-1)).abs().max() < 1e-4


def test_the_exact_plan_is_as_good_as_the_weights(exact: Model, reference: Model) -> None:
    text = (
        "The tower is 324 metres tall, about the same height as an 81-storey building, and the "
        "tallest structure in Paris. Its base is square, measuring 125 metres on each side."
    )
    ids = exact.vocabulary.encode(text)
    wanted, found = (
        model.forward(pack([Row(ids, 0, range(1, 9), len(ids))], 16), model.new_cache(9, 16))
        .log_softmax(-1).clone() for model in (reference, exact)
    )  # fmt: skip
    divergence = (wanted.exp() * (wanted - found)).sum(-1).mean()
    assert divergence < 0.01, divergence  # nats a token


def test_a_question_gets_its_answer(exact: Model) -> None:
    vocabulary = exact.vocabulary
    prompt = [
        ("<|im_start|>user\n", True),
        ("What is the capital of France? Answer in one sentence.", False),
        ("<|im_end|>\n<|im_start|>assistant\n", True),
    ]
    ids = vocabulary.encode_pieces(prompt)
    cache, said, feed, start = exact.new_cache(8, 16), [], ids, 0
    for _ in range(16):
        logits = exact.forward(pack([Row(feed, start, range(8))], 16), cache)
        start += len(feed)
        feed = draw(logits, [DrawParams(temperature=0)]).ids
        if feed[0] in exact.config.eos_ids:
            break
        said += feed
    assert vocabulary.decode(said).startswith("The capital of France is Paris")


def test_the_vocabulary_loads_without_torch(smollm2: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kernels.vocabulary import load_vocabulary;"
        f"load_vocabulary(Path({str(smollm2)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_every_known_architecture_is_tested() -> None:
    assert set(ARCHITECTURES) == {"llama", "mistral", "qwen2", "qwen3", "smollm3"}
