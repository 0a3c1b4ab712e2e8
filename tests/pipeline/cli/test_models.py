"""What a registry keeps."""

from pathlib import Path

import pytest

from pipeline.cli import models
from pipeline.cli.fetch import CATALOGUE, Known


def test_fetching_a_model_again_keeps_how_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    file = tmp_path / "models" / "tiny.gguf"
    file.parent.mkdir()
    file.write_bytes(b"weights")
    digest = models.sha256_of(file)
    monkeypatch.setitem(CATALOGUE, "tiny", Known("tiny==1", file.name, digest, 1))
    figures = {"format": "gguf", "context": 8, "memory_floor": 1, "precisions": []}
    monkeypatch.setattr(models, "_figures", lambda path: figures)
    assert models.pull("tiny") == 0
    assert models.read_registry(file.parent)["tiny"].plan == "exact"
    assert models.add("tiny", str(file), None, "fast") == 0
    assert models.pull("tiny") == 0
    assert models.read_registry(file.parent)["tiny"].plan == "fast"


def test_a_file_with_another_sum_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"weights")
    assert models.add("mine", str(file), "0" * 64, "exact") == 1
    assert "SHA-256" in capsys.readouterr().err
    assert models.read_registry(tmp_path / "models") == {}
