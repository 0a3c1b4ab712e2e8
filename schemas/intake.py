"""Bytes from outside into a `Request`, or a `Refusal` that names the field and what is allowed.

One door for everything that arrives: OpenAI's two routes, the native one, and records that anybody
publishes to `hr.requests`. Nothing that a client can send raises anything but Refusal.
"""

import difflib
import hashlib
from typing import Any, Literal, NamedTuple

import msgspec

from .codec import looks_json
from .content import messages, prompt
from .errors import Refusal
from .parameters import (
    ECHOED,
    LIMITS,
    NEUTRAL,
    SAMPLING,
    boolean,
    include_usage,
    integer,
    kind_of,
    neutral,
    string,
    unsupported,
)
from .request import Request

Route = Literal["chat", "text", "native", "record"]

MAX_MODEL_NAME = 256  # characters
_CONTENT = {"chat": ("messages",), "text": ("prompt",)}
_KNOWN = (
    *("model", "messages", "prompt", "stream", "stream_options", "logprobs"),
    *SAMPLING,
    *LIMITS,
    *ECHOED,
    *NEUTRAL,
)
_CHECKS = {**SAMPLING, **LIMITS, **ECHOED, **NEUTRAL}
_NAMES = frozenset(_KNOWN)
# what says as much as its absence: a record of ours names every field. `top_logprobs`: not beside a number
_DEFAULTS = {
    field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(Request)
    if not field.required and field.name in SAMPLING and field.name not in (*ECHOED, "top_logprobs")
}
_RECORD_ONLY = ("id", "type")
_TAG = Request.__struct_config__.tag
_canonical = msgspec.json.Encoder(order="deterministic")


class Parsed(NamedTuple):
    request: Request
    stream: bool = False
    include_usage: bool = False


def parse_body(raw: bytes, route: Route) -> Parsed:
    """A body as it came. `record` takes MessagePack (`request/1`) too.

    Raises Refusal, with code `invalid_json` (of a record: `invalid_record`) where the bytes are not
    what they should be, otherwise with the code, the path and the allowed values of one parameter.
    """
    body = _object(raw, route)
    if route == "record":
        _check_tag(body)
        body = _spread(body)
    return _parse(body, route)


def body_id(raw: bytes) -> Any:
    """What a record of `hr.requests` has under `id`, also where it is refused. Raises Refusal."""
    return _object(raw, "record").get("id")


def body_hash(request: Request) -> str:
    """SHA-256 of what was asked: the same for every order of keys and every encoding, whatever the
    id and whether it is streamed."""
    echoed = {name: value for name, value in request.echoed.items() if name != "stream_options"}
    asked = msgspec.structs.replace(request, id=None, echoed=echoed)
    return hashlib.sha256(_canonical.encode(asked)).hexdigest()


def _object(raw: bytes, route: Route) -> dict[str, Any]:
    code = "invalid_record" if route == "record" else "invalid_json"
    packed = route == "record" and not looks_json(raw.lstrip(b" \t\r\n"))
    form = "MessagePack, and is no JSON as it does not begin with {" if packed else "JSON"
    try:
        body = msgspec.msgpack.decode(raw) if packed else msgspec.json.decode(raw)
    except RecursionError as error:
        raise Refusal(code, "the body is nested too deeply") from error
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError) as error:
        # TypeError: a MessagePack map whose key is itself a map
        raise Refusal(code, f"the body is not valid {form}: {error}") from error
    if not isinstance(body, dict) or not set(map(type, body)) <= {str}:
        raise Refusal(code, f"the body must be an object with names, not {kind_of(body)}")
    return body


def _check_tag(body: dict[str, Any]) -> None:
    tag = body.get("type")
    if tag is not None and tag != _TAG:
        shown = repr(tag)[:64] if isinstance(tag, str) else kind_of(tag)
        raise Refusal("invalid_record", f"type must be {_TAG}, not {shown}", param="type")


def _spread(body: dict[str, Any]) -> dict[str, Any]:
    """A `Request` as we write it ourselves keeps what is only echoed in an object of its own."""
    echoed = body.get("echoed")
    if not isinstance(echoed, dict) or not echoed.keys() <= {*ECHOED, "stream_options"}:
        return body
    return {**body, **echoed, "echoed": None}


def _parse(body: dict[str, Any], route: Route) -> Parsed:
    fields: dict[str, Any] = {}
    echoed: dict[str, Any] = {}
    kind = _kind(body, route)
    for name, value in body.items():
        if value is None:
            continue
        default = _DEFAULTS.get(name)
        if type(value) is type(default) and value == default:
            continue
        check = _CHECKS.get(name)
        if check is None:
            if name not in _NAMES and not (route == "record" and name in _RECORD_ONLY):
                raise _unknown(name, route)
            continue
        checked = check(value, name)
        if name in ECHOED:
            echoed[name] = checked
        elif name in SAMPLING:
            fields[name] = checked
    if echoed.get("store"):
        neutral(False)(True, "store")
    if route == "record" and body.get("id") is not None:
        if not isinstance(body["id"], str):
            message = f"id must be a string, not {kind_of(body['id'])}"
            raise Refusal("bad_id", message, param="id")
        fields["id"] = body["id"]
    options = body.get("stream_options")
    usage = options is not None and include_usage(options, "stream_options")
    if usage:  # in the log, so that a stream resumed on another edge ends with the same bytes
        echoed["stream_options"] = {"include_usage": True}
    request = Request(
        model=_model(body),
        messages=messages(body["messages"], "messages") if kind == "chat" else None,
        prompt=prompt(body["prompt"], "prompt") if kind == "text" else None,
        max_tokens=_max_tokens(body),
        echoed=echoed,
        **fields,
        **_logprobs(body, kind, "top_logprobs" in fields),
    )
    _check_together(request)
    stream = body.get("stream")
    return Parsed(request, stream is not None and boolean(stream, "stream"), usage)


def _kind(body: dict[str, Any], route: Route) -> str:
    """`chat` or `text`. A field of the other kind is not known on OpenAI's routes."""
    given = [name for name in ("messages", "prompt") if body.get(name) is not None]
    wanted = _CONTENT.get(route, ("messages", "prompt"))
    for name in given:
        if name not in wanted:
            raise unsupported(name, f"{name} is not a parameter here; this route takes {wanted[0]}")
    if len(given) == 2:
        raise Refusal("invalid_request", "send messages or prompt, not both", param="prompt")
    if not given:
        raise Refusal("missing_parameter", f"{' or '.join(wanted)} is missing", param=wanted[0])
    return "chat" if given == ["messages"] else "text"


def _model(body: dict[str, Any]) -> str:
    if body.get("model") is None:
        raise Refusal("missing_parameter", "model is missing; name a model", param="model")
    name: str = string(MAX_MODEL_NAME, empty=False)(body["model"], "model")
    return name


def _max_tokens(body: dict[str, Any]) -> int | None:
    old, new = body.get("max_tokens"), body.get("max_completion_tokens")
    if old is not None and new is not None and old != new:
        raise Refusal(
            "invalid_value",
            f"max_tokens is {old} and max_completion_tokens is {new}; send one of them",
            param="max_completion_tokens",
        )
    return old if new is None else new


def _logprobs(body: dict[str, Any], kind: str, with_top: bool) -> dict[str, Any]:
    """A boolean with `top_logprobs`; a text completion may send the number instead, as OpenAI's."""
    value = body.get("logprobs")
    if value is None:
        return {}
    if kind == "text" and type(value) is int and not with_top:
        return {"logprobs": True, "top_logprobs": integer(0, 20)(value, "logprobs")}
    return {"logprobs": boolean(value, "logprobs")}


def _check_together(request: Request) -> None:
    """What no single parameter can tell."""
    if request.top_logprobs and not request.logprobs:
        raise Refusal("invalid_value", "top_logprobs needs logprobs: true", param="top_logprobs")
    if request.max_tokens is not None and request.min_tokens > request.max_tokens:
        raise Refusal(
            "invalid_value",
            f"min_tokens is {request.min_tokens}, above max_tokens {request.max_tokens}",
            param="min_tokens",
        )


def _unknown(name: str, route: Route) -> Refusal:
    shown = name[:64]
    near = difflib.get_close_matches(shown, _KNOWN, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return unsupported(shown, f"{shown} is not supported{hint}")
