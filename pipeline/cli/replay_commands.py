"""`headrace replay …`"""

from typing import Annotated

import typer

app = typer.Typer(
    help="Recorded topics: into a file, and from it into a topic, another cluster or a stage.",
    no_args_is_help=True,
)

File = Annotated[str, typer.Argument(help="What `replay record` wrote; - reads standard input.")]
Key = Annotated[str | None, typer.Option(help="Only records with this key: a request id …")]
Header = Annotated[
    list[str] | None, typer.Option(help="Only records with this header: NAME=VALUE, or NAME.")
]
Kafka = Annotated[str | None, typer.Option(help="Another cluster than the running one.")]


@app.command("record")
def replay_record(
    topics: Annotated[
        list[str],
        typer.Argument(help="TOPIC, TOPIC/PARTITION or TOPIC/PARTITION/FIRST-LAST (offsets)"),
    ],
    out: Annotated[str, typer.Option(help="File to write; - is standard output.")] = "-",
    since: Annotated[
        str | None, typer.Option(help="2026-11-30T18:00, or an age such as 90s, 10m, 2h, 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="As --since; itself excluded.")] = None,
    key: Key = None,
    header: Header = None,
    kafka: Kafka = None,
) -> None:
    """Write what lies in topics as JSON lines, in order of time."""
    from .ranges import Wanted
    from .replay import record

    raise typer.Exit(record(topics, out, since, until, Wanted.of(key, header), kafka))


@app.command("play")
def replay_play(
    file: File,
    into: Annotated[
        str | None, typer.Option(help="Topic to write to; default: the one it came from.")
    ] = None,
    as_new: Annotated[
        bool,
        typer.Option("--as-new", help="Requests again: without their ids, deadlines and traces."),
    ] = False,
    by_key: Annotated[
        bool, typer.Option("--by-key", help="Let the key choose the partition, not the recording.")
    ] = False,
    pace: Annotated[
        float, typer.Option(min=0, help="1: as it was recorded, 2: twice as fast, 0: at once.")
    ] = 0.0,
    key: Key = None,
    header: Header = None,
    kafka: Kafka = None,
) -> None:
    """Write recorded records into a topic, byte for byte."""
    from .ranges import Wanted
    from .replay import play

    raise typer.Exit(
        play(file, into, Wanted.of(key, header), kafka, as_new=as_new, by_key=by_key, pace=pace)
    )


@app.command("stage")
def replay_stage(
    file: File,
    stage: Annotated[str, typer.Argument(help="MODULE:FUNCTION, looked for here too.")],
    key: Key = None,
    header: Header = None,
) -> None:
    """Call a stage with recorded records and print what it yields; nothing is sent."""
    from .ranges import Wanted
    from .replay import through_stage

    raise typer.Exit(through_stage(file, stage, Wanted.of(key, header)))
