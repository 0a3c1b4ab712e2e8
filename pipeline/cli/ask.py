"""`headrace run`: one question over HTTP, the answer as it comes."""

import http.client
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.supervisor.home import Home

from .options import NOT_RUNNING, settings
from .say import error


def ask(prompt: str, model: str | None, options: dict[str, Any]) -> int:
    """Streams the answer to stdout. Ctrl-C cancels the request and leaves with 130."""
    loaded = settings()
    state = Home(Path(loaded.home)).read_state()
    edges = [
        role
        for role in (state or {"roles": []})["roles"]
        if role["role"] == "edge" and role["http"]
    ]
    if not edges:
        return error("nothing is running here: headrace up", NOT_RUNNING)
    host = urlsplit(edges[0]["http"]).netloc
    connection = http.client.HTTPConnection(
        host, timeout=660
    )  # the longest queue target and a minute
    request_id = ""
    try:
        model = model or _only_model(connection)
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True}
        connection.request(
            "POST", "/v1/chat/completions", json.dumps({**body, **options}),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        answer = connection.getresponse()
        request_id = answer.getheader("Headrace-Request-Id") or ""
        if answer.status != 200:
            return error(_words(answer.read()))
        return _print_stream(answer)
    except KeyboardInterrupt:
        _cancel(host, request_id)
        return 130
    except (OSError, http.client.HTTPException) as fault:
        return error(f"the edge at {host} went away: {fault}")
    finally:
        connection.close()


def _only_model(connection: http.client.HTTPConnection) -> str:
    connection.request("GET", "/v1/models")
    listed = json.loads(connection.getresponse().read())["data"]
    return str(listed[0]["id"]) if listed else ""


def _print_stream(answer: http.client.HTTPResponse) -> int:
    cut = False
    for raw in answer:
        line = raw.decode().rstrip("\r\n")
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            print(flush=True)
            return error(event["error"]["message"])
        for choice in event["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
            cut = cut or choice["finish_reason"] == "length"
    print(flush=True)
    if cut and sys.stderr.isatty():  # a person, not a pipe
        print("headrace: cut off here; --max-tokens gives it more", file=sys.stderr)
    return 0


def _words(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]


def _cancel(host: str, request_id: str) -> None:
    if not request_id:
        return
    try:
        connection = http.client.HTTPConnection(host, timeout=5)
        connection.request("DELETE", f"/v1/requests/{request_id}")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        print("headrace: could not cancel; the edge will, after its grace", file=sys.stderr)
