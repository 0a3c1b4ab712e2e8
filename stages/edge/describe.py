"""`/openapi.json`: the routes, with the bodies that the schemas know."""

from functools import cache
from typing import Any

import msgspec

from pipeline.presence import VERSION
from schemas.errors import CODES, Error
from schemas.request import Message, Request
from schemas.result import Result

# what a body may say besides the record's own fields
HTTP_ONLY: dict[str, Any] = {
    "stream": {"type": "boolean", "default": False},
    "stream_options": {"properties": {"include_usage": {"type": "boolean"}}},
    "max_completion_tokens": {"type": "integer", "minimum": 1},
}
RECORD_ONLY = ("type", "id", "echoed")
REF = "#/components/schemas/{name}"


@cache
def document() -> bytes:
    """OpenAPI 3.1."""
    known, components = msgspec.json.schema_components(
        [Request, Message, Result, Error], ref_template=REF
    )
    refs = dict(zip(("Request", "Message", "Result", "Error"), known, strict=True))
    body = components["Request"]  # without what only a record says
    body["required"] = ["model"]
    body["properties"] = {k: v for k, v in body["properties"].items() if k not in RECORD_ONLY}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Headrace", "version": VERSION},
            "paths": _paths(refs),
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"key": []}],
        }
    )


def _paths(refs: dict[str, Any]) -> dict[str, Any]:
    asked = {"allOf": [refs["Request"], {"properties": HTTP_ONLY}]}
    ask = {"required": True, "content": {"application/json": {"schema": asked}}}
    one = [_parameter("request_id", "path", "string")]
    cursor = [
        _parameter("format", "query", "string", enum=["native", "openai"]),
        _parameter("starting_after", "query", "integer", minimum=0),
        _parameter("Last-Event-ID", "header", "string"),
    ]
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    completion = {"application/json": {"schema": {"type": "object"}}, **stream}
    body = {"application/json": {"schema": {"type": "object"}}}
    outcome = {
        "application/json": {
            "schema": {"type": "object", "properties": {"outcome": refs["Result"]}}
        }
    }
    begin = [
        _parameter("Idempotency-Key", "header", "string", maxLength=255),
        _parameter("X-Request-ID", "header", "string", maxLength=128),
        _parameter("X-Request-Deadline", "header", "integer"),
    ]

    def route(summary: str, status: int, content: Any, parameters: Any = (), **more: Any) -> Any:
        shape = {"type": "object", "required": ["error"], "properties": {"error": refs["Error"]}}
        failed = {"application/json": {"schema": shape}}
        answers: dict[str, Any] = {str(status): {"description": "done", "content": content}}
        answers["default"] = {"description": _codes(), "content": failed}
        return {"summary": summary, "parameters": list(parameters), "responses": answers, **more}

    return {
        "/v1/chat/completions": {
            "post": route("Chat completion", 200, completion, begin, requestBody=ask)
        },
        "/v1/completions": {
            "post": route("Text completion", 200, completion, begin, requestBody=ask)
        },
        "/v1/models": {"get": route("Models", 200, body)},
        "/v1/models/{name}": {
            "get": route("One model", 200, body, [_parameter("name", "path", "string")])
        },
        "/v1/requests": {"post": route("Begin a request", 202, body, begin, requestBody=ask)},
        "/v1/requests/{request_id}": {
            "get": route("How it stands", 200, outcome, one),
            "delete": _or_later(route("Cancel it", 200, outcome, one), outcome),
        },
        "/v1/requests/{request_id}/events": {
            "get": route("Its events, from where you were", 200, stream, one + cursor)
        },
        "/": {"get": route("What is where", 200, body)},
        "/healthz": {"get": route("Alive", 200, body)},
        "/readyz": {"get": route("Can serve", 200, body)},
        "/metrics": {"get": route("Prometheus", 200, {"text/plain": {}})},
        "/version": {"get": route("Version", 200, body)},
        "/openapi.json": {"get": route("This document", 200, body)},
    }


def _or_later(route: Any, content: Any) -> Any:
    """It may also be that the end is not there yet."""
    route["responses"]["202"] = {"description": "it will end", "content": content}
    return route


def _parameter(name: str, where: str, kind: str, **limits: Any) -> dict[str, Any]:
    schema = {"type": kind, **limits}
    return {"name": name, "in": where, "required": where == "path", "schema": schema}


def _codes() -> str:
    codes = ", ".join(f"{code} ({known.status})" for code, known in CODES.items())
    return f"An error in OpenAI's shape; `code` is one of: {codes}"
