"""A bad model file is refused with file, tensor and reason: never a crash, a hang or a huge buffer."""

import json
import random
import resource
from pathlib import Path

import pytest

from kernels.errors import (
    ArchitectureError,
    HashError,
    ModelError,
    ModelFileError,
    PlanError,
    QuantisationError,
    ShapeError,
    VocabularyError,
)
from kernels.gguf import GGUFFile
from kernels.model import load_model
from kernels.safetensors import SafetensorsWeights
from kernels.vocabulary import load_vocabulary
from kernels.weights import sha256_of
from tests.kernels import tiny

MUTATIONS = 1000


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny.write_gguf(
        tmp_path_factory.mktemp("made") / "tiny.gguf", "qwen2", "Q4_1"
    ).read_bytes()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Bits flipped, numbers made huge, a piece cut out or the end cut off; mostly in the header."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = int(len(out) * rng.random() ** 3)  # the header is at the beginning
        kind = rng.randrange(4)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f\0\0\0\0"])
        elif kind == 2:
            del out[at : at + rng.randint(1, 40)]
        else:
            del out[max(at, 1) :]
        out = out or bytearray(b"G")
    return bytes(out)


def test_a_thousand_mutated_gguf_files(gguf_bytes: bytes, tmp_path: Path) -> None:
    rng, path = random.Random(4), tmp_path / "bad.gguf"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(gguf_bytes, rng))
        try:
            file = GGUFFile(path)
            for name in file.tensors:
                file.data(name)
            load_vocabulary(path)
        except ModelError as error:
            refused += 1
            assert str(path) in str(error)
        path.unlink()
    assert refused > MUTATIONS // 2
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << 10, f"{grown} KiB"  # the file has a few dozen KB


def test_a_thousand_mutated_safetensors_files(tmp_path: Path) -> None:
    folder = tiny.write_safetensors(tmp_path / "made")
    data = (folder / "model.safetensors").read_bytes()
    rng, path = random.Random(5), tmp_path / "bad.safetensors"
    refused = 0
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(data, rng))
        try:
            source = SafetensorsWeights(path)
            for i in range(tiny.LAYERS):
                source.read(f"blk.{i}.attn_q.weight").dequantise()
        except ModelError as error:
            refused += 1
            assert "safetensors" in str(error)
        path.unlink()
    assert refused > MUTATIONS // 2


def test_a_truncated_file_names_the_tensor(gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(gguf_bytes[:-100])
    with pytest.raises(ModelFileError, match=r"short\.gguf: tensor 'blk\.1\..*truncated"):
        load_model(path)


def test_an_unknown_architecture_is_named(gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(gguf_bytes.replace(b"qwen2", b"mamba"))
    with pytest.raises(ArchitectureError, match=r"'mamba' is not known; known are llama"):
        load_model(path)


def test_an_unknown_quantisation_names_the_tensor(gguf_bytes: bytes, tmp_path: Path) -> None:
    path, name = tmp_path / "odd.gguf", b"blk.0.attn_q.weight"
    at = gguf_bytes.index(name) + len(name) + 4 + 16  # dimensions, two sizes
    path.write_bytes(gguf_bytes[:at] + bytes([16, 0, 0, 0]) + gguf_bytes[at + 4 :])
    with pytest.raises(QuantisationError, match=r"'blk\.0\.attn_q\.weight': tensor type 16"):
        load_model(path)


def test_a_wrong_shape_gives_both_shapes(gguf_bytes: bytes, tmp_path: Path) -> None:
    path, key = tmp_path / "wide.gguf", b"qwen2.feed_forward_length"
    at = gguf_bytes.index(key) + len(key) + 4  # type
    path.write_bytes(gguf_bytes[:at] + (128).to_bytes(4, "little") + gguf_bytes[at + 4 :])
    with pytest.raises(ShapeError, match=r"shape \(96, 64\), the configuration needs \(128, 64\)"):
        load_model(path)


def test_an_unknown_pre_tokenizer_is_refused(gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pre.gguf"
    path.write_bytes(gguf_bytes.replace(b"smollm", b"dbrxxx"))
    with pytest.raises(VocabularyError, match=r"pre is 'dbrxxx'; known are"):
        load_vocabulary(path)


def test_another_hash_is_refused_before_anything_is_read(gguf_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes)
    with pytest.raises(HashError, match="wanted was 00ff"):
        load_model(path, sha256="00ff")
    seen: list[tuple[str, float]] = []
    model = load_model(path, sha256=sha256_of([path]).upper(), progress=lambda *p: seen.append(p))
    assert model.revision == sha256_of([path])
    assert seen[0] == ("verify", 1.0) and seen[-1] == ("load", 1.0)


def test_what_is_no_model_or_no_plan(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelFileError, match="does not exist"):
        load_model(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        load_model(tmp_path / "text.gguf")
    with pytest.raises(ModelFileError, match=r"no \*\.safetensors"):
        load_model(tmp_path)
    with pytest.raises(PlanError, match="known are exact, fast, reference"):
        load_model(tmp_path / "text.gguf", plan="quick")


def test_a_folder_with_a_missing_tensor_or_configuration(tmp_path: Path) -> None:
    folder = tiny.write_safetensors(tmp_path / "folder")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"num_hidden_layers": 3}))
    with pytest.raises(ShapeError, match=r"layers\.2\..*is missing"):
        load_model(folder)
    (folder / "config.json").write_text(json.dumps(values | {"hidden_size": "wide"}))
    with pytest.raises(ModelFileError, match="hidden_size is 'wide'"):
        load_model(folder)
