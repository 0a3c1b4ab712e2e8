"""A stage of the user's own, by the name of its module."""

import importlib
import inspect
import sys
import typing
from pathlib import Path
from typing import Any

from pipeline.stage import Stage


class NoStage(Exception):
    """There is no such stage; says what was looked for."""


def stage_of(name: str) -> tuple[Stage, Any]:
    """`MODULE:FUNCTION`, and the type of its first parameter: what a value is read as. Raises NoStage."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise NoStage(f"{name!r} is no stage: write MODULE:FUNCTION, as bill:bill")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name.removesuffix(".py"))
    except ImportError as fault:
        raise NoStage(f"{module_name} cannot be imported from {Path.cwd()}: {fault}") from fault
    finally:
        sys.path.pop(0)
    stage = getattr(module, function_name, None)
    if not callable(stage):
        raise NoStage(f"{module_name} has no function {function_name}")
    return stage, _kind(stage, name)


def _kind(stage: Any, name: str) -> Any:
    called = stage if inspect.isroutine(stage) else type(stage).__call__
    hints = typing.get_type_hints(called)
    hints.pop("return", None)
    if not hints:
        raise NoStage(f"{name}: its first parameter needs a type, to say what a record is read as")
    return next(iter(hints.values()))
