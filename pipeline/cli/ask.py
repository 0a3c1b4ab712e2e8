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


def ask(prompt: str, model: str | None, options: dict[str, Any], api_key: str | None) -> int:
    """Streams the answer to stdout. Ctrl-C cancels the request and leaves with 130."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    loaded = settings()
    state = Home(Path(loaded.home)).read_state()
    edges = [
        role
        for role in (state or {"roles": []})["roles"]
        if role["role"] == "edge" and role["http"]
    ]
    if not edges:
        return error("nothing is running here: headrace up", NOT_RUNNING)
    edges.sort(key=lambda role: role["state"] != "ready")
    host = urlsplit(edges[0]["http"]).netloc
    connection = http.client.HTTPConnection(
        host, timeout=660
    )  # the longest queue target and a minute
    request_id = ""
    try:
        model = model or _first_model(connection, headers)
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, **options}), headers)
        answer = connection.getresponse()
        request_id = answer.getheader("Headrace-Request-Id") or ""
        if answer.status != 200:
            return error(_words(answer))
        return _print_stream(answer)
    except KeyboardInterrupt:
        _cancel(host, request_id, headers)
        return 130
    except Refused as refused:
        return error(str(refused))
    except (OSError, http.client.HTTPException) as fault:
        return error(f"the edge at {host} went away: {fault}")
    finally:
        connection.close()


class Refused(Exception):
    """The edge will not; says why."""


def _first_model(connection: http.client.HTTPConnection, headers: dict[str, str]) -> str:
    """Raises Refused."""
    connection.request("GET", "/v1/models", headers=headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise Refused(_words(answer))
    listed = json.loads(answer.read())["data"]
    if not listed:
        raise Refused("no model is registered: headrace models pull smollm2-135m")
    return str(listed[0]["id"])


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


def _words(answer: http.client.HTTPResponse) -> str:
    body = answer.read()
    try:
        said = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        said = body.decode(errors="replace")[:500]
    return f"{said} (--api-key, or HEADRACE_API_KEY)" if answer.status == 401 else said


def _cancel(host: str, request_id: str, headers: dict[str, str]) -> None:
    if not request_id:
        return
    try:
        connection = http.client.HTTPConnection(host, timeout=5)
        connection.request("DELETE", f"/v1/requests/{request_id}", headers=headers)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        print("headrace: could not cancel; the edge will, after its grace", file=sys.stderr)
