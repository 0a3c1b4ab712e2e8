"""What a request says: messages of text, or a prompt of text or token ids."""

from typing import Any

from .errors import Refusal
from .parameters import MAX_COUNT, unsupported, wrong_type, wrong_value
from .request import Message

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MAX_NAME = 64
# what clients send back of an answer they were given; empty, it says nothing
_ECHOED_BY_CLIENTS = ("annotations", "tool_calls", "refusal", "audio", "function_call")


def messages(value: Any, path: str) -> list[Message]:
    if not isinstance(value, list):
        raise wrong_type(path, "a list of messages", value)
    if not value:
        raise wrong_value(path, "a list of at least one message")
    return [_message(entry, f"{path}[{i}]") for i, entry in enumerate(value)]


def prompt(value: Any, path: str) -> str | list[int]:
    """A string, token ids, or a list that holds one of either."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of token ids", value)
    if not value:
        raise wrong_value(path, "a string or at least one token id")
    if isinstance(value[0], str | list):
        if len(value) > 1:
            raise Refusal(
                "unsupported_content",
                f"{path} holds {len(value)} prompts; send one prompt a request",
                param=path,
            )
        only = value[0]
        return only if isinstance(only, str) else _token_ids(only, f"{path}[0]")
    return _token_ids(value, path)


def _token_ids(value: list[Any], path: str) -> list[int]:
    if not value:
        raise wrong_value(path, "a list of at least one token id")
    # the fast way first: prompts have tens of thousands of ids
    if set(map(type, value)) != {int}:
        at = next(i for i, entry in enumerate(value) if type(entry) is not int)
        raise wrong_type(f"{path}[{at}]", "a token id", value[at])
    if min(value) < 0 or max(value) > MAX_COUNT:
        at = next(i for i, entry in enumerate(value) if not 0 <= entry <= MAX_COUNT)
        raise wrong_value(f"{path}[{at}]", "a token id, an integer of at least 0")
    return value


def _message(value: Any, path: str) -> Message:
    if not isinstance(value, dict):
        raise wrong_type(path, "an object with role and content", value)
    role = value.get("role")
    if role is None:
        raise _missing(f"{path}.role", "one of " + ", ".join(ROLES))
    if not isinstance(role, str):
        raise wrong_type(f"{path}.role", "a string", role)
    if role in ("tool", "function"):
        raise Refusal(
            "unsupported_content", f"{path}.role {role} is not supported", param=f"{path}.role"
        )
    if role not in ROLES:
        raise wrong_value(f"{path}.role", "one of " + ", ".join(ROLES))
    for key in value:
        if key not in ("role", "content", "name"):
            _refuse_field(value[key], path, str(key)[:64])
    return Message(
        role=ROLES[role],
        content=_content(value.get("content"), f"{path}.content"),
        name=_name(value.get("name"), f"{path}.name"),
    )


def _refuse_field(value: Any, path: str, key: str) -> None:
    if value is None or (key in _ECHOED_BY_CLIENTS and value in ([], {}, "")):
        return
    if key in ("tool_calls", "function_call", "tool_call_id", "audio"):
        raise Refusal(
            "unsupported_content", f"{path}.{key} is not supported", param=f"{path}.{key}"
        )
    raise unsupported(
        f"{path}.{key}", f"{path}.{key} is not supported; a message has role, content and name"
    )


def _content(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise _missing(path, "a string or a list of text parts")
    if not isinstance(value, list):
        raise wrong_type(path, "a string or a list of text parts", value)
    if not value:
        raise wrong_value(path, "a string or at least one text part")
    return "".join([_part(part, f"{path}[{i}]") for i, part in enumerate(value)])


def _part(value: Any, path: str) -> str:
    if not isinstance(value, dict):
        raise wrong_type(path, 'an object such as {"type": "text", "text": "…"}', value)
    kind = value.get("type")
    if kind is None:
        raise _missing(f"{path}.type", "text")
    if kind != "text":
        shown = repr(kind)[:64] if isinstance(kind, str) else "of this kind"
        raise Refusal(
            "unsupported_content",
            f"{path}: content {shown} is not supported; this model reads parts of type text",
            param=f"{path}.type",
        )
    text = value.get("text")
    if text is None:
        raise _missing(f"{path}.text", "a string")
    if not isinstance(text, str):
        raise wrong_type(f"{path}.text", "a string", text)
    for key in value:
        if key not in ("type", "text") and value[key] is not None:
            raise unsupported(f"{path}.{key!s:.64}", f"{path}: a text part has type and text alone")
    return text


def _name(value: Any, path: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong_type(path, "a string", value)
    if not 0 < len(value) <= MAX_NAME:
        raise wrong_value(path, f"a string of 1 to {MAX_NAME} characters")
    return value


def _missing(path: str, wanted: str) -> Refusal:
    return Refusal("missing_parameter", f"{path} is missing; it must be {wanted}", param=path)
