"""Every parameter of a request from outside: its type, its range, and what is neutral.

A check takes the value and its path, gives the value that `Request` holds, or raises Refusal. All
numbers leave here within 64 bits and finite, so that any encoding can carry them.
"""

import math
from collections.abc import Callable
from typing import Any

from .errors import Refusal

Check = Callable[[Any, str], Any]

MAX_COUNT = 2**31 - 1  # of tokens: far beyond any context, within every encoding
MAX_CHOICES = 8  # of one request; each is a sequence of its own in the engine
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024  # characters; each token's text is compared with every stop string
MAX_BIASES = 1024
MAX_ECHO = 512  # characters of a parameter that is only echoed
MAX_METADATA = 16  # pairs, as OpenAI's
MAX_TIMEOUT = 86_400  # s, a third of what the topics keep
TIERS = ("auto", "default", "priority", "flex")

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


def kind_of(value: Any) -> str:
    return _KINDS.get(type(value), "a binary value")


def wrong_type(path: str, wanted: str, value: Any) -> Refusal:
    message = f"{path} must be {wanted}, not {kind_of(value)}"
    return Refusal("invalid_type", message, param=path)


def wrong_value(path: str, allowed: str) -> Refusal:
    return Refusal("invalid_value", f"{path} must be {allowed}", param=path)


def unsupported(path: str, message: str) -> Refusal:
    return Refusal("unsupported_parameter", message, param=path)


def boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(path, "true or false", value)
    return value


def integer(low: int, high: int, allowed: str = "") -> Check:
    def check(value: Any, path: str) -> int:
        if type(value) is not int:
            raise wrong_type(path, "an integer", value)
        if not low <= value <= high:
            raise wrong_value(path, allowed or f"an integer from {low} to {high}")
        return value

    return check


def number(low: float, high: float, *, above: bool = False, allowed: str = "") -> Check:
    """`above`: the lower bound itself is not allowed."""

    def check(value: Any, path: str) -> float:
        if type(value) not in (int, float):
            raise wrong_type(path, "a number", value)
        if not low <= value <= high or (above and value == low):
            raise wrong_value(path, allowed or f"a number from {low:g} to {high:g}")
        return float(value)

    return check


def string(limit: int, *, empty: bool = True) -> Check:
    def check(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise wrong_type(path, "a string", value)
        if len(value) > limit or not (value or empty):
            least = 0 if empty else 1
            raise wrong_value(path, f"a string of {least} to {limit} characters")
        return value

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise wrong_type(path, "a string", value)
        if value not in allowed:
            raise wrong_value(path, "one of " + ", ".join(allowed))
        return value

    return check


def neutral(*accepted: Any) -> Check:
    """Only values that ask for nothing; they are dropped."""

    def check(value: Any, path: str) -> None:
        # by type too: 1 == True
        if not any(type(value) is type(other) and value == other for other in accepted):
            shown = " or ".join(_shown(other) for other in accepted)
            raise unsupported(path, f"{path} is supported only as {shown}; leave it out")

    return check


def stops(value: Any, path: str) -> list[str]:
    """A string or up to 16; an empty one would end every answer at once."""
    if isinstance(value, str):
        return [string(MAX_STOP_LENGTH, empty=False)(value, path)]
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of strings", value)
    if len(value) > MAX_STOPS:
        raise wrong_value(path, f"at most {MAX_STOPS} strings, not {len(value)}")
    check = string(MAX_STOP_LENGTH, empty=False)
    return [check(stop, f"{path}[{i}]") for i, stop in enumerate(value)]


def biases(value: Any, path: str) -> dict[str, float]:
    """Token id → bias; in canonical form, sorted by id."""
    if not isinstance(value, dict):
        raise wrong_type(path, "an object of token id to number", value)
    if len(value) > MAX_BIASES:
        raise wrong_value(path, f"at most {MAX_BIASES} token ids, not {len(value)}")
    check = number(-100, 100)
    found: dict[int, float] = {}
    for key, bias in value.items():
        text = str(key)
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_COUNT):
            raise wrong_value(path, f"an object whose keys are token ids, not {_short(text)!r}")
        found[int(text)] = check(bias, f"{path}.{text}")
    return {str(key): found[key] for key in sorted(found)}


def metadata(value: Any, path: str) -> dict[str, str]:
    """OpenAI's: up to 16 pairs of strings, so that an outcome always has room for them."""
    if not isinstance(value, dict):
        raise wrong_type(path, "an object of strings", value)
    if len(value) > MAX_METADATA:
        raise wrong_value(path, f"at most {MAX_METADATA} pairs, not {len(value)}")
    check = string(MAX_ECHO)
    for key, text in value.items():
        if not isinstance(key, str) or len(key) > 64:
            raise wrong_value(path, "an object whose keys are strings of at most 64 characters")
        check(text, f"{path}.{_short(key)}")
    return value


def timeout(value: Any, path: str) -> float:
    """Seconds from acceptance."""
    allowed = f"a number of seconds above 0, at most {MAX_TIMEOUT}"
    try:
        return float(number(0, MAX_TIMEOUT, above=True)(value, path))
    except Refusal as refusal:
        raise Refusal("invalid_deadline", f"{path} must be {allowed}", param=path) from refusal


def include_usage(value: Any, path: str) -> bool:
    """`stream_options`."""
    if not isinstance(value, dict):
        raise wrong_type(path, "an object", value)
    known: dict[str, Check] = {"include_usage": boolean, "include_obfuscation": neutral(False)}
    for key, option in value.items():
        if key not in known:
            raise unsupported(f"{path}.{_short(key)}", f"{path} has include_usage alone")
        if option is not None:
            known[key](option, f"{path}.{key}")
    return bool(value.get("include_usage"))


def tool_choice(value: Any, path: str) -> None:
    neutral("none", "auto")(value, path)


_count = integer(1, MAX_COUNT, "an integer of at least 1")
_penalty = number(-2, 2)

# what `Request` has under the same name
SAMPLING: dict[str, Check] = {
    "temperature": number(0, 2),
    "top_p": number(0, 1, above=True, allowed="a number above 0, at most 1"),
    "top_k": integer(-1, MAX_COUNT, "an integer: 0 or -1 (off), or at least 1"),
    "min_p": number(0, 1),
    "presence_penalty": _penalty,
    "frequency_penalty": _penalty,
    "repetition_penalty": number(
        0, math.nextafter(math.inf, 0), above=True, allowed="a finite number above 0"
    ),
    "stop": stops,
    "seed": integer(-(2**63), 2**63 - 1, "an integer of 64 bits"),
    "top_logprobs": integer(0, 20),
    "logit_bias": biases,
    "n": integer(1, MAX_CHOICES),
    "min_tokens": integer(0, MAX_COUNT, "an integer of at least 0"),
    "ignore_eos": boolean,
    "normalize": boolean,
    "service_tier": one_of(*TIERS),
    "timeout": timeout,
    "metadata": metadata,
}

LIMITS: dict[str, Check] = {"max_tokens": _count, "max_completion_tokens": _count}

# accepted without promise, given back in the result
ECHOED: dict[str, Check] = {
    "user": string(MAX_ECHO),
    "store": boolean,
    "safety_identifier": string(MAX_ECHO),
    "prompt_cache_key": string(MAX_ECHO),
    "parallel_tool_calls": boolean,
}

NEUTRAL: dict[str, Check] = {
    "tools": neutral([]),
    "tool_choice": tool_choice,
    "response_format": neutral({"type": "text"}),
    "modalities": neutral(["text"]),
    "best_of": neutral(1),
    "echo": neutral(False),
}


def _shown(value: Any) -> str:
    return {False: "false", True: "true"}[value] if isinstance(value, bool) else str(value)


def _short(key: Any) -> str:
    return str(key)[:64]
