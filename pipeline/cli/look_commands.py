"""Commands that look: topics, records, dead letters, logs, contracts, simulated disasters, the doctor."""

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, fail

app = typer.Typer()
dlq = typer.Typer(help="Dead letters: records that no stage could take.", no_args_is_help=True)


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


@dlq.command("list")
def dlq_list(json: Json = False) -> None:
    """Dead letters of every stage, newest last."""
    from .letters import show_all

    raise typer.Exit(show_all(as_json=json))


@dlq.command("show")
def dlq_show(
    place: Annotated[str, typer.Argument(help="STAGE/OFFSET as `dlq list` prints it")],
    json: Json = False,
) -> None:
    """One dead letter: why, from where, and its bytes."""
    from .letters import show_one

    raise typer.Exit(show_one(place, as_json=json))


@dlq.command("replay")
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
def simulate(
    seeds: Annotated[str, typer.Option(help="A-B, both included, or one number.")] = "0-499",
    jobs: Annotated[int, typer.Option(min=1, help="Processes; one a core.")] = 1,
    explain: Annotated[int | None, typer.Option(help="Tell one seed, record by record.")] = None,
    out: Annotated[Path, typer.Option(help="Where `--explain` writes.")] = Path(),
) -> None:
    """The whole pipeline in virtual time, with seeded faults: does it lose or repeat anything?"""
    from .simulate.command import explain_seed, parse_range
    from .simulate.command import simulate as run

    if explain is not None:
        raise typer.Exit(explain_seed(explain, out))
    chosen = parse_range(seeds)
    if not chosen:
        raise fail(f"--seeds takes a range such as 0-499, not {seeds!r}", 2)
    raise typer.Exit(run(chosen, jobs))


@app.command()
def doctor(
    operators: Annotated[
        bool, typer.Option("--operators", help="Which kernel is chosen, and why.")
    ] = False,
    json: Json = False,
) -> None:
    """What is wrong here, and what to do about it."""
    from .doctor import examine, show_operators

    raise typer.Exit(show_operators() if operators else examine(as_json=json))
