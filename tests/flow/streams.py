"""Raw SSE over a socket: bytes as they come, so that byte equality can be asked for."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.flow.installation import Installation


@dataclass
class Frame:
    raw: bytes
    id: str | None = None
    event: str | None = None
    data: str = ""


def open_stream(
    url: str, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    kinds = {"Content-Type": "application/json", **(headers or {})}
    if body is None:
        connection.request("GET", path, headers=headers or {})
    else:
        connection.request("POST", path, json.dumps(body), kinds)
    return connection, connection.getresponse()


def read_frame(answer: http.client.HTTPResponse) -> Frame | None:
    """The next frame that is no comment; None at the end."""
    lines: list[bytes] = []
    while True:
        line = answer.readline()
        if not line:
            return None
        lines.append(line)
        if line in (b"\n", b"\r\n"):
            frame = _parse(lines)
            if frame is not None:
                return frame
            lines = []


def _parse(lines: list[bytes]) -> Frame | None:
    frame = Frame(b"".join(lines))
    fields = False
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            frame.id, fields = value, True
        elif name == "event":
            frame.event, fields = value, True
        elif name == "data":
            frame.data, fields = frame.data + value, True
    return frame if fields else None


def all_frames(answer: http.client.HTTPResponse) -> list[Frame]:
    frames = []
    while (frame := read_frame(answer)) is not None:
        frames.append(frame)
    return frames


def post(
    url: str, path: str, body: Any, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], Any]:
    """Status, headers, JSON body."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return _call(url, "POST", path, raw, {"Content-Type": "application/json", **(headers or {})})


def get(
    url: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], Any]:
    return _call(url, "GET", path, None, headers or {})


def delete(
    url: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], Any]:
    return _call(url, "DELETE", path, None, headers or {})


def _call(
    url: str, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        raw = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, json.loads(raw) if raw[:1] in (b"{", b"[") else raw.decode()
    finally:
        connection.close()


def metric(url: str, name: str) -> float:
    """One figure of a /metrics page, by its name with labels as it stands there."""
    parts = urlsplit(url)
    text = _call(f"http://{parts.netloc}", "GET", parts.path, None, {})[2]
    for line in str(text).splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"{url} shows no {name}")


def unreadable(headrace: Installation, topic: str) -> float:
    """Records of a topic that all members together have counted and skipped."""
    name = f'headrace_unreadable_total{{topic="{headrace.topic(topic)}"}} '
    total = 0.0
    for each in headrace.state()["roles"]:
        if each["metrics"]:
            parts = urlsplit(str(each["metrics"]))
            page = str(_call(f"http://{parts.netloc}", "GET", parts.path, None, {})[2])
            total += sum(float(line.split()[-1]) for line in page.splitlines() if name in line)
    return total
