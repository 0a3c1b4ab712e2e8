"""A request's outcome as the outside sees it: OpenAI's body, its error, its usage, its timings."""

from typing import Any

import msgspec

from schemas.errors import CODES, Error, Refusal
from schemas.ids import birth
from schemas.ledger import Usage
from schemas.result import Choice, Result, Timings

from .logprobs import Transcript

_json = msgspec.json.encode

# What an outcome without an error of its own means.
_CODES = {
    "cancelled": ("request_cancelled", "the request was cancelled"),
    "expired": ("deadline_exceeded", "the deadline passed before the request was done"),
    "failed": ("engine_error", "the request failed"),
    "refused": ("invalid_request", "the request was refused"),
}


def error_of(result: Result) -> Error:
    """Why it did not complete."""
    if result.error is not None:
        return result.error
    code, message = _CODES.get(result.outcome, ("engine_error", f"outcome {result.outcome}"))
    return Error(message=message, type=CODES[code].type, code=code)


def status_of(result: Result) -> int:
    """The HTTP status of an outcome that is not `completed`: by its code, else by its kind."""
    known = CODES.get(error_of(result).code)
    if result.outcome == "refused":
        return known.status if known is not None else 400
    return {"cancelled": 499, "expired": 504}.get(result.outcome, 500)


def error_body(error: Error) -> bytes:
    return _json({"error": error})


def refusal_body(refusal: Refusal) -> bytes:
    return error_body(refusal.error)


def usage_body(usage: Usage) -> dict[str, Any]:
    """OpenAI's shape."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def completion_body(result: Result, model: str, transcript: Transcript | None = None) -> bytes:
    """A whole answer: `chat.completion` or `text_completion`; `transcript`: with its logprobs."""
    shape = _chat_choice if result.kind == "chat" else _text_choice
    choices = [shape(choice, transcript) for choice in result.choices]
    body = {
        "id": result.id,
        "object": "chat.completion" if result.kind == "chat" else "text_completion",
        "created": birth(result.id) // 1000,
        "model": result.model or model,
        "choices": choices,
        "usage": usage_body(result.usage),
        "service_tier": result.service_tier,
    }
    return _json(body)


def _chat_choice(choice: Choice, transcript: Transcript | None) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": None if transcript is None else transcript.chat(choice.index),
        "finish_reason": choice.finish_reason,
    }


def _text_choice(choice: Choice, transcript: Transcript | None) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": None if transcript is None else transcript.text(choice.index),
        "finish_reason": choice.finish_reason,
    }


def server_timing(timings: Timings) -> bytes:
    """The `Server-Timing` header, e.g. `queue;dur=3.1, prefill;dur=12`."""
    parts = []
    for name in timings.__struct_fields__:
        value = getattr(timings, name)
        if value is not None:
            parts.append(f"{name};dur={value:g}")
    return ", ".join(parts).encode()
