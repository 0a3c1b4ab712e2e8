"""What a setting may be, in words, and what settings must be to one another."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import inspect

from .settings import HOUR, Settings

PREFIX = "HEADRACE_"
SHORT = {"worker.null_rate": "HEADRACE_NULL_RATE", "worker.null_vary": "HEADRACE_NULL_VARY"}


def variable_of(name: str) -> str:
    """`edge.port` as the environment writes it."""
    return SHORT.get(name) or PREFIX + name.replace(".", "_").upper()


def explain(fault: msgspec.ValidationError, values: Mapping[str, Any]) -> str:
    """Which setting, what it is, and what it may be."""
    path = str(fault).partition(" - at `")[2]
    if "$.keys" in path:  # without its content: who writes the key itself there has a secret in it
        return (
            "[keys] (HEADRACE_KEYS) maps the SHA-256 of an API key, as 64 hexadecimal digits, "
            "to a tenant of 1 to 128 characters"
        )
    name = path.removeprefix("$.").rstrip("`").partition("[")[0]
    given: Any = values
    kind: Any = Settings
    for part in name.split("."):
        given = given.get(part) if isinstance(given, Mapping) else None
        fields = {each.name: each.type for each in msgspec.structs.fields(kind)}
        kind = fields[part]
    return f"{name} ({variable_of(name)}) is {given!r}; it must be {allowed(kind)}"


def allowed(kind: Any) -> str:
    """A setting's type and range in words."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(each or "''" for each in get_args(kind))
    known = inspect.type_info(kind)
    if isinstance(known, inspect.BoolType):
        return "true or false"
    if isinstance(known, inspect.IntType | inspect.FloatType):
        word = "a whole number" if isinstance(known, inspect.IntType) else "a number"
        return f"{word} from {_figure(known.ge)} to {_figure(known.le)}"
    if isinstance(known, inspect.StrType) and known.pattern is not None:
        return f"of the form {known.pattern}"
    return "a table" if isinstance(known, inspect.DictType) else "a string"


def _figure(number: float | None) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


class Rule(NamedTuple):
    """`broken` by what is loaded; `names` are those that have to change."""

    names: tuple[str, ...]
    broken: Callable[[Settings], bool]
    wanted: str


RULES = (
    Rule(
        ("topics.requests_retention_ms", "ingress.deadline_limit"),
        lambda s: s.topics.requests_retention_ms < 3_000 * s.ingress.deadline_limit,
        "requests, ready and ledger must be kept for three times the longest deadline: "
        "a request that waits for its deadline must still be there",
    ),
    Rule(
        ("topics.tokens_retention_ms", "worker.run_limit"),
        lambda s: s.topics.tokens_retention_ms < 1_000 * s.worker.run_limit + HOUR // 6,
        "tokens must be kept for longer than the longest run and a segment of 10 min",
    ),
    Rule(
        ("ingress.deadline", "ingress.deadline_limit"),
        lambda s: s.ingress.deadline > s.ingress.deadline_limit,
        "a default may not be beyond the limit",
    ),
    Rule(
        ("ingress.deadline_bronze", "ingress.deadline_limit"),
        lambda s: s.ingress.deadline_bronze > s.ingress.deadline_limit,
        "a default may not be beyond the limit",
    ),
    Rule(
        ("worker.heartbeat", "worker.pause_after"),
        lambda s: s.worker.heartbeat >= s.worker.pause_after,
        "a worker must be heard several times before it pauses itself",
    ),
    Rule(
        ("worker.pause_after", "orchestration.dead_after"),
        lambda s: s.worker.pause_after >= s.orchestration.dead_after,
        "a worker must pause itself before it is declared dead",
    ),
)


def conflicts(settings: Settings) -> list[str]:
    """Settings that do not go together, each in words."""
    found = []
    for rule in RULES:
        if rule.broken(settings):
            shown = " and ".join(
                f"{name} ({variable_of(name)}) is {_value(settings, name)!r}" for name in rule.names
            )
            found.append(f"{shown}: {rule.wanted}")
    return found


def _value(settings: Settings, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)
