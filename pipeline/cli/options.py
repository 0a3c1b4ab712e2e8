"""What every command shares: exit codes, settings, the flag for scripts."""

from typing import Annotated, Any

import typer

from pipeline.load_settings import SettingsError, configured, load_settings
from pipeline.settings import Settings

NOT_RUNNING = 3
NO_PLACE = 75  # port, lock or space

Json = Annotated[bool, typer.Option("--json", help="For scripts.")]


def fail(message: str, code: int = 1) -> typer.Exit:
    typer.echo(f"headrace: {message}", err=True)
    return typer.Exit(code)


def settings(**flags: Any) -> Settings:
    try:
        return load_settings({key: value for key, value in flags.items() if value is not None})
    except SettingsError as error:
        raise fail(str(error), 2) from error


def chosen(flag: Any, name: str) -> bool:
    """Whether a flag, the environment or the file says something of the setting `name`."""
    return flag is not None or configured(name)
