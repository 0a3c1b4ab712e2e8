"""Where settings come from: flags over environment over `headrace.toml` over defaults.

The environment's names are `HEADRACE_SECTION_KEY` (`HEADRACE_EDGE_PORT`) and, without a section,
`HEADRACE_KEY` (`HEADRACE_HOME`). An unknown key is an error that names its place and the nearest.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .check_settings import PREFIX, conflicts, explain
from .settings import Section, Settings

FILE = "headrace.toml"
# read elsewhere, or by other names
OTHERS = {
    "HEADRACE_SUPERVISED",
    "HEADRACE_NULL_RATE",
    "HEADRACE_NULL_VARY",
    "HEADRACE_CONFIG",
    "HEADRACE_API_KEY",
}


class SettingsError(Exception):
    """A setting that does not exist or cannot be; names where it was written."""


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """All settings. `flags` are dotted names (`edge.port`) to values. Raises SettingsError."""
    values = _gather(os.environ if environment is None else environment, file)
    _merge(values, _from_flags(flags or {}), "the command line")
    try:
        loaded = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(explain(error, values)) from error
    if wrong := conflicts(loaded):
        raise SettingsError("\n".join(wrong))
    return loaded


def configured(
    name: str, *, environment: Mapping[str, str] | None = None, file: Path | None = None
) -> bool:
    """Whether anybody said so: the default of `kafka.bootstrap`, for one, is no wish. Raises
    SettingsError."""
    section, _, key = name.partition(".")
    said = _gather(os.environ if environment is None else environment, file).get(section)
    return said is not None and (not key or key in said)


def _gather(environment: Mapping[str, str], file: Path | None) -> dict[str, Any]:
    """What the file and the environment say."""
    path = file or Path(environment.get("HEADRACE_CONFIG", FILE))
    values = _read_file(path)
    _check_names(values, str(path))
    _merge(values, _from_environment(environment), "the environment")
    return values


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def sections() -> dict[str, type[Section]]:
    """The sections by name."""
    return {
        field.name: field.type
        for field in msgspec.structs.fields(Settings)
        if isinstance(field.type, type) and issubclass(field.type, Section)
    }


def _names() -> Iterator[tuple[str, ...]]:
    known = sections()
    for name in Settings.__struct_fields__:
        if name in known:
            yield from ((name, key) for key in known[name].__struct_fields__)
        else:
            yield (name,)


def variables() -> dict[str, tuple[str, ...]]:
    """Every variable of the environment, and the setting that it names."""
    return {PREFIX + "_".join(name).upper(): name for name in _names()}


def _from_environment(environment: Mapping[str, str]) -> dict[tuple[str, ...], Any]:
    known = variables()
    found: dict[tuple[str, ...], Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in OTHERS:
            continue
        if variable not in known:
            raise SettingsError(f"{variable} is no setting{_nearest(variable, list(known))}")
        found[known[variable]] = _table(variable, text) if text.startswith("{") else text
    for variable, name in (
        ("HEADRACE_NULL_RATE", ("worker", "null_rate")),
        ("HEADRACE_NULL_VARY", ("worker", "null_vary")),
    ):
        if variable in environment:
            found[name] = environment[variable]
    return found


def _table(variable: str, text: str) -> Any:
    """A table's value in the environment is JSON: HEADRACE_KEYS='{"…": "tenant"}'."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise SettingsError(f"{variable}: {error}") from error


def _from_flags(flags: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    return {tuple(name.split(".")): value for name, value in flags.items()}


def _merge(values: dict[str, Any], found: Mapping[tuple[str, ...], Any], where: str) -> None:
    for name, value in found.items():
        place = values
        for part in name[:-1]:
            place = place.setdefault(part, {})
        place[name[-1]] = value
    _check_names(values, where)


def _check_names(values: Mapping[str, Any], where: str) -> None:
    known = sections()
    top = list(Settings.__struct_fields__)
    for name, value in values.items():
        if name not in top:
            raise SettingsError(f"{where}: {name!r} is no setting{_nearest(name, top)}")
        if name not in known:
            continue
        if not isinstance(value, dict):
            raise SettingsError(f"{where}: {name!r} is a section: write [{name}] and its keys")
        keys = list(known[name].__struct_fields__)
        for key in value:
            if key not in keys:
                raise SettingsError(f"{where}: [{name}] has no key {key!r}{_nearest(key, keys)}")


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(known))}"
