"""`/healthz`, `/readyz` and `/metrics` of every process: a responder small enough to cost nothing idle.

One request a connection, GET and HEAD only, its head limited in size and time.
"""

import asyncio

import msgspec

from . import logs, metrics
from .member import Member

HEAD_LIMIT = 8192  # bytes of a request's head
HEAD_TIMEOUT = 5.0  # s: a prober is near
CONNECTIONS = 32  # at once; beyond it 503

Answer = tuple[int, str, bytes]  # status, content type, body
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {408: "Request Timeout", 431: "Request Header Fields Too Large"}
REASONS |= {500: "Internal Server Error", 503: "Service Unavailable"}


def answer(member: Member, path: str) -> Answer:
    """What this process says at `path`."""
    if path == "/metrics":
        return 200, metrics.CONTENT_TYPE, metrics.render()
    who = {"member": member.id, "role": member.role, "epoch": member.epoch}
    if path == "/healthz":
        return _json(200, {"alive": True, **who})
    if path == "/readyz":
        missing = dict(member.missing)
        if member.draining.is_set():
            missing["draining"] = "draining"
        body = {"ready": member.ready, "missing": missing, **who}
        return _json(200 if member.ready else 503, body)
    return _error(404, "route_not_found", f"no route {path[:100]}: /healthz, /readyz, /metrics")


def _json(status: int, body: dict[str, object]) -> Answer:
    return status, "application/json", msgspec.json.encode(body)


def _error(status: int, code: str, message: str) -> Answer:
    return _json(status, {"error": {"message": message, "code": code}})


async def serve_health(member: Member, host: str, port: int = 0) -> int:
    """Listen and return the port; `member.http` says where unless an edge already did."""
    server = await listen(member, host, port)
    bound: int = server.sockets[0].getsockname()[1]
    if member.http is None:
        shown = f"[{host}]" if ":" in host else host
        member.http = f"http://{shown}:{bound}"
    return bound


async def listen(member: Member, host: str, port: int = 0) -> asyncio.Server:
    """The server itself, for who must close it."""
    open_connections = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            async with asyncio.timeout(2 * HEAD_TIMEOUT):  # a reader that reads nothing is cut off
                if open_connections > CONNECTIONS:
                    await _write(writer, _error(503, "busy", "too many connections"))
                else:
                    await _write(writer, *await _respond(member, reader))
        except (ConnectionError, TimeoutError) as error:
            logs.info("health_connection", error=repr(error))
        finally:
            open_connections -= 1
            writer.close()

    return await asyncio.start_server(connected, host, port, limit=HEAD_LIMIT)


async def _respond(member: Member, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """The answer to one request, and whether its body is to be sent."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _error(431, "headers_too_large", f"a head has at most {HEAD_LIMIT} bytes"), True
    except asyncio.IncompleteReadError:
        return _error(400, "invalid_request", "the request ends before its head does"), True
    except TimeoutError:
        return _error(408, "request_timeout", f"no whole head within {HEAD_TIMEOUT:g} s"), True
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        return _error(400, "invalid_request", "this is not an HTTP/1.1 request line"), True
    if words[0] not in ("GET", "HEAD"):
        return _error(405, "method_not_allowed", "GET and HEAD only"), True
    return answer(member, words[1].partition("?")[0]), words[0] == "GET"


async def _write(writer: asyncio.StreamWriter, reply: Answer, with_body: bool = True) -> None:
    status, kind, body = reply
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    writer.write(head.encode() + (body if with_body else b""))
    await writer.drain()
