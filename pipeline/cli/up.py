"""`up`, `down`, `status`: the supervisor from a person's side."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.supervisor.home import Home, HomeError, is_alive
from pipeline.supervisor.plan import Plan
from pipeline.supervisor.supervisor import StartError, Supervisor

from .live import show_until
from .options import NO_PLACE, NOT_RUNNING, settings
from .planning import differences, make_plan
from .publish import prepare
from .say import error

READY_LIMIT = 300.0  # s until a detached start gives up: a model's load on a slow disk is minutes
HOPELESS = 5  # deaths at its start after which a detached `up` gives up on a role
STOP_LIMIT = 70.0  # s: two drain limits and the broker


def _home() -> Home:
    return Home(Path(settings().home))


def start(flags: dict[str, Any], *, detach: bool) -> int:
    """Start everything here, or in the background; a second start finds the first."""
    home = _home()
    running = home.read_state()
    if running is not None and detach:
        if wrong := differences(flags, running.get("said", {})):
            return error(wrong)
        return _wait_ready(home, None)
    try:
        home.prepare()
        plan = make_plan(home, flags)
    except HomeError as fault:
        return error(str(fault), NO_PLACE)
    if isinstance(plan, str):
        return error(plan)
    return _detached(home, flags) if detach else _foreground(plan)


def _foreground(plan: Plan) -> int:
    supervisor = Supervisor(plan, lambda bootstrap: prepare(plan, bootstrap))
    try:
        asyncio.run(_run(supervisor))
    except HomeError as fault:
        return error(str(fault), NO_PLACE)
    except StartError as fault:
        return error(str(fault), fault.code if fault.code in (1, 2, NO_PLACE) else 1)
    return 0


async def _run(supervisor: Supervisor) -> None:
    table = asyncio.create_task(show_until(supervisor.state)) if sys.stderr.isatty() else None
    try:
        await supervisor.run()
    finally:
        if table is not None:
            table.cancel()


def _detached(home: Home, flags: dict[str, Any]) -> int:
    command = [sys.executable, "-m", "pipeline", "up"]
    for flag, value in flags.items():
        if value is not None:
            command += [f"--{flag}", str(value)]
    with (home.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    return _wait_ready(home, process)


def _wait_ready(home: Home, process: "subprocess.Popen[bytes] | None") -> int:
    """Show what it waits for, until every role is ready."""
    deadline = time.monotonic() + READY_LIMIT
    last = ""
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            words = (home.logs / "supervisor.log").read_text(errors="replace").splitlines()[-5:]
            return error("it did not start:\n" + "\n".join(words), process.returncode or 1)
        state = home.read_state()
        waits = waiting_for(state)
        if (fault := hopeless(state)) is not None:
            return error(f"{fault}\nThe rest still runs: headrace logs, headrace down")
        if state is not None and not waits:
            for line in addresses(state):
                print(line, file=sys.stderr)
            return 0
        if waits != last:
            print(f"  {waits}", file=sys.stderr)
            last = waits
        time.sleep(0.1)
    return error(f"not ready after {READY_LIMIT:.0f} s, still {last}; see headrace logs")


def hopeless(state: dict[str, Any] | None) -> str | None:
    """A role that dies again and again at its start, with its last words."""
    for role in (state or {"roles": []})["roles"]:
        if role["role"] in ("broker", "store"):
            continue  # without them the supervisor ends by itself, and says why
        if role["state"] == "failed" or (
            role["state"] == "backoff" and role["restarts"] >= HOPELESS
        ):
            return f"{role['id']} does not start:\n" + "\n".join(role["words"])
    return None


def waiting_for(state: dict[str, Any] | None) -> str:
    """In words; empty when everything is ready."""
    if state is None:
        return "starting the supervisor"
    if state["doing"]:
        return str(state["doing"])
    waits = []
    for role in state["roles"]:
        if role["state"] != "ready":
            why = "; ".join(role["missing"].values()) or "; ".join(role["words"][-1:])
            state_of = role["state"] if role["state"] != "starting" else ""
            said = ": ".join(part for part in (state_of, why) if part and part != "starting")
            waits.append(f"{role['id']} ({said})" if said else role["id"])
    return f"waiting for {', '.join(waits)}" if waits else ""


def addresses(state: dict[str, Any]) -> list[str]:
    lines = [
        f"edge   {role['http']}  (OpenAI-compatible, {role['http']}/v1)"
        for role in state["roles"]
        if role["role"] == "edge"
    ]
    lines.append(f"Kafka  {state['kafka']}  (topics hr.*)")
    lines.append(f"store  {state['store'] or 'none: idempotency keys get 503'}")
    return lines


def stop() -> int:
    home = _home()
    state = home.read_state()
    if state is None:
        print("headrace: nothing is running", file=sys.stderr)
        return NOT_RUNNING
    pid = int(state["pid"])
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_LIMIT
    while time.monotonic() < deadline:
        if not is_alive(pid) or home.read_state() is None:
            return 0
        time.sleep(0.1)
    return error(f"the supervisor (pid {pid}) still drains after {STOP_LIMIT:.0f} s")


def show(*, as_json: bool) -> int:
    state = _home().read_state()
    if state is None:
        print(json.dumps({"roles": []}) if as_json else "nothing is running")
        return NOT_RUNNING
    if as_json:
        kept = ("role", "id", "pid", "state", "http", "metrics", "restarts")
        roles = [{key: role[key] for key in kept} for role in state["roles"]]
        for role in roles:  # one that was given up is stopped, for who has to decide
            role["state"] = {"failed": "stopped"}.get(role["state"], role["state"])
        print(json.dumps({"kafka": state["kafka"], "store": state["store"], "roles": roles}))
        return 0
    print("\n".join(addresses(state)))
    for role in state["roles"]:
        why = "; ".join(role["missing"].values())
        print(f"{role['id']:<18} {role['state']:<9} pid {role['pid']}  {role['http'] or ''}  {why}")
    return 0
