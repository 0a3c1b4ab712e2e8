"""What `up` will start, from flags and settings; and whether that is what runs already."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pipeline.settings import Settings
from pipeline.supervisor.home import Home
from pipeline.supervisor.plan import Plan

from .options import chosen, settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# what a person may say of an installation, as a flag of `up` and as a setting
SAID = {
    "http": "edge.port",
    "host": "host",
    "kafka": "kafka.bootstrap",
    "store": "store.url",
    "edges": "up.edges",
    "workers": "up.workers",
    "model": "model",
    "engine": "worker.engine",
}


def wishes(flags: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The settings under these flags, and of `SAID` what anybody said."""
    loaded = settings(**{name: flags.get(flag) for flag, name in SAID.items()})
    said = {
        flag: _value(loaded, name) for flag, name in SAID.items() if chosen(flags.get(flag), name)
    }
    return loaded, said


def _value(loaded: Settings, name: str) -> Any:
    found: Any = loaded
    for part in name.split("."):
        found = getattr(found, part)
    return found


def differences(flags: Mapping[str, Any], running: Mapping[str, Any]) -> str:
    """In words, how what runs is not what is asked for now; empty: it is."""
    _, said = wishes(flags)
    lines = [
        f"  --{flag} is {running[flag]}, not {value}"
        for flag, value in said.items()
        if flag in running and value not in ("", running[flag])
    ]
    if not lines:
        return ""
    advice = "It was left as it is. To change it: headrace down, and then up again."
    return "\n".join(["it runs already, otherwise than you ask:", *lines, advice])


def make_plan(home: Home, flags: Mapping[str, Any]) -> Plan | str:
    """The plan, or what is missing for it in words."""
    loaded, said = wishes(flags)
    engine, model = loaded.worker.engine, loaded.model
    if engine == "torch":
        model, missing = _model_here(home, model)
        if missing:
            return missing
    host = loaded.host
    edge_host = host if flags.get("host") or not chosen(None, "edge.host") else loaded.edge.host
    for each in sorted({host, edge_host}):
        warn_if_open(each, loaded)
    up = loaded.up
    kafka = (loaded.kafka.bootstrap or None) if "kafka" in said else None
    # `--store ""`: none at all
    store = loaded.store.url if flags.get("store") is not None else (loaded.store.url or None)
    return Plan(
        home=home,
        host=host,
        edge_host=edge_host,
        http=loaded.edge.port,
        kafka=kafka,
        broker_port=up.broker_port,
        fsync=up.fsync,
        advertise=flags.get("advertise"),
        store=store,
        counts={
            "edge": up.edges,
            "worker": up.workers,
            "ingress": up.ingress,
            "orchestration": up.orchestration,
            "delivery": up.delivery,
        },
        environment={
            "HEADRACE_HOST": host,
            "HEADRACE_EDGE_HOST": edge_host,
            "HEADRACE_MODEL": model or "null",
            "HEADRACE_WORKER_ENGINE": engine,
            "HEADRACE_KAFKA_STATIC_MEMBERS": "true",
        },
        said={
            "http": loaded.edge.port,
            "host": host,
            "kafka": kafka or "the embedded broker",
            "store": "one of its own" if store is None else store,
            "edges": up.edges,
            "workers": up.workers,
            "model": model or "null",
            "engine": engine,
        },
    )


def warn_if_open(host: str, loaded: Settings) -> None:
    """Somebody else's machine may reach it, and nobody asks who it is."""
    if host not in LOOPBACK and not loaded.keys:
        print(
            f"headrace: warning: {host} is reachable from outside and no [keys] are configured: "
            "everybody who reaches it is tenant `default`",
            file=sys.stderr,
        )


def _model_here(home: Home, wanted: str) -> tuple[str, str]:
    """Which model, and what keeps it from being served."""
    from .fetch import ModelFault
    from .models import read_registry

    if find_spec("torch") is None:
        advice = "pip install 'torch~=2.13.0' (the CPU build: see the README)"
        return wanted, f"torch is not installed: {advice}"
    try:
        registry = read_registry(home.models)
    except ModelFault as fault:
        return wanted, str(fault)
    if not registry:
        advice = "fetch one with `headrace models pull smollm2-135m`"
        return wanted, f"no model in {home.models}: {advice}"
    model = wanted or next(iter(registry))
    if model not in registry:
        known = ", ".join(registry)
        return model, f"--model {model!r} is not registered in {home.models}: there are {known}"
    file = home.models / registry[model].file
    if not file.is_file():
        return model, f"{file} is gone: fetch it again with `headrace models pull {model}`"
    return model, ""
