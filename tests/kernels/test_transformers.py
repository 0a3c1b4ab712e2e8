"""Logits of made checkpoints beside those of `transformers`, which shares nothing with us.

It runs in a process of its own: it imports a package `kernels` where it finds one, and ours is another.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.config import ARCHITECTURES
from kernels.model import load_model
from tests.kernels import tiny
from tests.kernels.test_model import IDS, run

ROOT = Path(__file__).parents[2]
_THEIRS = """
import sys
sys.path = [p for p in sys.path if p not in ("", {root!r})]
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__module__", repr(f))]
import numpy as np, torch
from transformers import AutoModelForCausalLM
for folder in {folders!r}:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        np.save(folder + "/logits.npy", model(torch.tensor([{ids!r}])).logits[0].numpy())
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints, one for each architecture, with the logits of `transformers`."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    root = tmp_path_factory.mktemp("checkpoints")
    folders = []
    for arch in ARCHITECTURES:
        folders.append(str(tiny.write_safetensors(root / arch, arch)))
        config = root / arch / "config.json"  # their defaults are another model's
        values = json.loads(config.read_text()) | {"head_dim": tiny.DIM // tiny.HEADS}
        config.write_text(json.dumps(values | {"pad_token_id": None}))
    code = _THEIRS.format(root=str(ROOT), folders=folders, ids=IDS)
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root, env=offline, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return root


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
@pytest.mark.parametrize("plan", ["reference", "exact"])
def test_logits_are_those_of_transformers(checkpoints: Path, arch: str, plan: str) -> None:
    wanted = torch.from_numpy(np.load(checkpoints / arch / "logits.npy"))
    found = run(load_model(checkpoints / arch, plan=plan), IDS)
    # the exact plan keeps keys and values in half precision
    tolerance = 1e-4 if plan == "reference" else 5e-3
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance)
