"""`headrace`: commands, flags and exit codes, as docs/operations.md lists them.

0 fine, 1 failure, 2 usage, 3 not running, 70 device lost, 75 port, lock or space.
"""

import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import look_commands, model_commands, replay_commands
from .options import Json, fail, settings

app = typer.Typer(
    name="headrace",
    help="LLM inference on Kafka: accepted requests are kept, cut streams resume.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(model_commands.app, name="models")
app.add_typer(look_commands.app)
app.add_typer(look_commands.dlq, name="dlq")
app.add_typer(replay_commands.app, name="replay")


@app.command()
def up(
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything is ready.")
    ] = False,
    http: Annotated[int | None, typer.Option(help="Port of the first edge (8080).")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind (127.0.0.1).")] = None,
    advertise: Annotated[
        str | None, typer.Option(help="HOST:PORT of the broker for other machines.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(help="Your own Kafka instead of the embedded broker.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Your own Redis or Valkey: redis://… or unix://…")
    ] = None,
    edges: Annotated[int | None, typer.Option(min=1)] = None,
    workers: Annotated[int | None, typer.Option(min=0)] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to serve; default: the first one pulled.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="torch, or null for tests without a model.")
    ] = None,
) -> None:
    """Start the broker, the store and every role; Ctrl-C drains, twice stops."""
    from .up import start

    flags = {
        "http": http, "host": host, "advertise": advertise, "kafka": kafka, "store": store,
        "edges": edges, "workers": workers, "model": model, "engine": engine,
    }  # fmt: skip
    raise typer.Exit(start(flags, detach=detach))


@app.command()
def down() -> None:
    """Drain and stop what `up` started."""
    from .up import stop

    raise typer.Exit(stop())


@app.command()
def status(json: Json = False) -> None:
    """What runs, where it listens, and what it waits for."""
    from .up import show

    raise typer.Exit(show(as_json=json))


@app.command()
def serve(
    role: Annotated[
        str, typer.Argument(help="edge, ingress, orchestration, delivery, worker, broker")
    ],
    id: Annotated[str | None, typer.Option("--id", help="Stable name of this member.")] = None,
    http: Annotated[
        int | None, typer.Option(help="Port: of the edge, or of the health endpoint.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind (127.0.0.1).")] = None,
    kafka: Annotated[str | None, typer.Option(help="Bootstrap address of the broker.")] = None,
    store: Annotated[str | None, typer.Option(help="redis://… or unix://…")] = None,
    engine: Annotated[str | None, typer.Option(help="worker: torch or null.")] = None,
    model: Annotated[str | None, typer.Option(help="worker: which model.")] = None,
    dir: Annotated[Path | None, typer.Option("--dir", help="broker: its data.")] = None,
    port: Annotated[int, typer.Option(help="broker: its port.")] = 19092,
    advertise: Annotated[
        str | None, typer.Option(help="broker: HOST:PORT for other machines.")
    ] = None,
    fsync: Annotated[bool, typer.Option("--fsync", help="broker: survive power loss too.")] = False,
) -> None:
    """One role in the foreground."""
    from pipeline.supervisor.plan import ROLES

    from . import serve as roles
    from .planning import warn_if_open

    if role == "broker":
        roles.serve_broker(dir, host, port, advertise, fsync)
    if role not in ROLES:
        known = ", ".join([*ROLES, "broker"])
        raise fail(f"there is no role {role!r}: choose one of {known}", 2)
    loaded = settings(
        **{
            "host": host,
            "model": model,
            "edge.port" if role == "edge" else "health_port": http,
            "edge.host": host if role == "edge" else None,
            "kafka.bootstrap": kafka,
            "store.url": store,
            "worker.engine": engine,
        }
    )
    if role == "edge":
        warn_if_open(loaded.edge.host, loaded)
    raise typer.Exit(roles.serve_role(role, id or f"{role}-{socket.gethostname()}", loaded))


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option()] = None,
    max_tokens: Annotated[int, typer.Option(help="Where it stops at the latest.")] = 512,
    temperature: Annotated[float | None, typer.Option()] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="HEADRACE_API_KEY", help="Where [keys] are configured: one of them."),
    ] = None,
) -> None:
    """Ask one question and stream the answer; Ctrl-C cancels it."""
    from .ask import ask

    text = sys.stdin.read() if prompt == "-" else prompt
    options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    given = {name: value for name, value in options.items() if value is not None}
    raise typer.Exit(ask(text, model, given, api_key))


def main() -> None:
    try:
        app()
    except BrokenPipeError:  # `headrace tail … | head`
        sys.stderr.close()
        raise SystemExit(0) from None
