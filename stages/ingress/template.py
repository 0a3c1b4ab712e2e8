"""Chat templates: messages to text, in jinja's sandbox.

A template comes with a model file, so it is run as a stranger's code: immutable values, no attributes of
Python, bounded output. Text that a user wrote can never become a control token: where it holds one, or
could complete one together with the template's text, a mark that no message contains breaks it, and the
vocabulary looks for control tokens between the marks only.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.errors import Refusal
from schemas.request import Message

GROWTH = 4  # a template may make so many times as many characters as it was given, and
ROOM = 65_536  # so many more, before it counts as runaway
MAX_POWER = 64
# private use plane: more of them than fit into a request, so that one is always free
_MARKS = range(0xF0000, 0x10FFFE)

Pieces = list[tuple[str, bool]]  # (text, is_template), as kernels.vocabulary takes them


class TemplateRefused(Exception):
    """The template itself said no, with `raise_exception`."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's, which bounds `range` but neither repetition nor powers."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (abs(left) <= ROOM and abs(right) <= MAX_POWER):
            raise ValueError(f"it raises {str(left)[:32]} to the power of {str(right)[:32]}")
        for many, count in ((left, right), (right, left)):
            repeats = isinstance(many, str | list | tuple) and isinstance(count, int)
            if repeats and len(many) * count > ROOM:
                raise ValueError(f"it repeats {len(many)} characters {count} times")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """One model's template, compiled once. Raises jinja2.TemplateError when it is none."""

    def __init__(
        self, source: str, control: Iterable[str], *, bos: str, eos: str, now_ms: Callable[[], int]
    ) -> None:
        environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.fromtimestamp(
            now_ms() / 1000, UTC
        ).strftime(form)
        self._template = environment.from_string(source)
        self._guard = Guard(control)
        self._shared = {
            **self._template.globals,
            "add_generation_prompt": True,
            "bos_token": bos,
            "eos_token": eos,
            "tools": None,
        }

    def render(self, messages: list[Message]) -> Pieces:
        """Pieces of the prompt, the assistant's turn begun. Raises Refusal."""
        mark = _unused(messages)
        shown = [self._shown(message, mark) for message in messages]
        limit = ROOM + GROWTH * sum(len(message.content) for message in messages)
        try:
            text = self._run(shown, limit)
        except TemplateRefused as refused:
            raise Refusal(
                "invalid_value", f"the model's chat template: {refused}", param="messages"
            ) from refused
        except (jinja2.TemplateError, ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise _broken(error) from error
        except (AttributeError, RecursionError) as error:
            raise _broken(error) from error
        return [(part, True) for part in text.split(mark)]

    def _run(self, messages: list[dict[str, str]], limit: int) -> str:
        parts, size = [], 0
        # `shared`: without a walk over all globals, which costs more than most templates
        context = self._template.new_context({**self._shared, "messages": messages}, shared=True)
        for part in self._template.root_render_func(context):
            size += len(part)
            if size > limit:
                raise ValueError(f"it writes more than {limit} characters")
            parts.append(part)
        return "".join(parts)

    def _shown(self, message: Message, mark: str) -> dict[str, str]:
        shown = {"role": message.role, "content": self._guard.break_up(message.content, mark)}
        if message.name is not None:
            shown["name"] = self._guard.break_up(message.name, mark)
        return shown


class Guard:
    """Breaks up control tokens in a user's text."""

    def __init__(self, control: Iterable[str]) -> None:
        tokens = [token for token in control if token]
        alternatives = "|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))
        # a lookahead finds overlapping ones too
        self._pattern = re.compile(f"(?={alternatives})") if tokens else None
        self._heads = tuple({token[:i] for token in tokens for i in range(1, len(token))})
        self._tails = tuple({token[i:] for token in tokens for i in range(1, len(token))})
        self._all = "\0".join(tokens)

    def break_up(self, text: str, mark: str) -> str:
        """`text` with `mark` inside every control token, and at an end that could be a part of one.

        White space stays outermost, so that a template's `trim` still works.
        """
        core = text.strip()
        if self._pattern is None or not core:
            return text
        broken = self._break_inside(core, mark)
        inside = core in self._all
        if inside or core.startswith(self._tails):
            broken = mark + broken
        if inside or core.endswith(self._heads):
            broken += mark
        if broken == core:
            return text
        begin = text.index(core)
        return text[:begin] + broken + text[begin + len(core) :]

    def _break_inside(self, text: str, mark: str) -> str:
        assert self._pattern is not None, "break_up returns before when there is no control token"
        cuts = [match.start() + 1 for match in self._pattern.finditer(text)]
        if not cuts:
            return text
        return mark.join([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])


def _unused(messages: list[Message]) -> str:
    """A character that no message contains."""
    rare = {c for m in messages if not m.content.isascii() for c in m.content if ord(c) >= 0xF0000}
    rare |= {c for m in messages if m.name for c in m.name}
    return next(mark for mark in map(chr, _MARKS) if mark not in rare)


def _tojson(value: Any, indent: int | None = None) -> str:
    """As templates expect it: jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: Any) -> None:
    raise TemplateRefused(str(message)[:500])


def _broken(error: Exception) -> Refusal:
    said = f"the model's chat template failed: {type(error).__name__}: {error}"
    return Refusal("internal_error", said[:500], param="messages")
