"""compose.yaml names only commands and variables that exist."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.load_settings import load_settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = {name: made for name, made in COMPOSE["services"].items() if "build" in made}


def test_every_role_is_there() -> None:
    serves = {made["command"][1] for made in OURS.values() if made["command"][0] == "serve"}
    assert serves == {"edge", "ingress", "orchestration", "worker", "delivery"}


@pytest.mark.parametrize("name", OURS)
def test_its_variables_are_settings(name: str) -> None:
    environment = {key: str(value) for key, value in OURS[name]["environment"].items()}
    loaded = load_settings(environment=environment, file=ROOT / "no-such.toml")
    assert loaded.kafka.bootstrap == "kafka:9092"


@pytest.mark.parametrize("name", OURS)
def test_its_command_exists(name: str) -> None:
    command = OURS[name]["command"]
    depth = 2 if command[0] == "models" else 1
    asked = subprocess.run(
        [sys.executable, "-m", "pipeline", *command[:depth], "--help"],
        capture_output=True, text=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    for word in command[depth:]:
        if word.startswith("--"):
            assert word in asked.stdout, f"{shlex.join(command)}: no flag {word}"


def test_the_image_has_every_package() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    for package in ("schemas", "pipeline", "stages", "workers", "kernels"):
        assert f"COPY {package} {package}" in dockerfile
