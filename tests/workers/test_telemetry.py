"""Memory figures exist on every machine, with a GPU or without."""

from pathlib import Path

import pytest

from workers import telemetry


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0"])
def test_memory_is_a_share(device: str) -> None:
    assert 0.0 < telemetry.memory_gauge(device)() <= 1.0


def test_a_container_with_a_limit_is_measured_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("250\n")
    assert telemetry.memory_gauge("cpu")() == 0.25
