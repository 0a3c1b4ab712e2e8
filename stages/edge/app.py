"""The routes, and what every answer has in common."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from pipeline import health, logs
from pipeline.presence import VERSION
from schemas.errors import Refusal

from . import native
from .completions import complete
from .describe import document
from .door import authenticate, trace
from .edge import Edge
from .exchange import Exchange
from .models import list_models, show_model

Handler = Callable[..., Awaitable[None]]
ASGI = Callable[[Any, Any, Any], Awaitable[None]]
OUTAGES = ("broker_unavailable", "store_unavailable", "lookup_budget", "draining")
WELCOME = {
    "models": "/v1/models",
    "ask": ["/v1/chat/completions", "/v1/completions", "/v1/requests"],
    "description": "/openapi.json",
    "state": ["/healthz", "/readyz", "/metrics", "/version"],
}


class Endpoint:
    """A route's handler: `handler(edge, exchange, **path parameters)`, behind the door."""

    def __init__(self, edge: Edge, handler: Handler, *, open_to_all: bool = False) -> None:
        self.edge = edge
        self.handler = handler
        self.open_to_all = open_to_all

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange: Exchange = scope["exchange"]
        if not self.open_to_all:
            authenticate(self.edge, exchange)
        await self.handler(self.edge, exchange, **scope.get("path_params", {}))


class App:
    """ASGI."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        behind = partial(Endpoint, edge)
        free = partial(Endpoint, edge, open_to_all=True)
        chat, text = (
            behind(partial(complete, route="chat")),
            behind(partial(complete, route="text")),
        )
        # most of the traffic, without the router's walk
        self.straight: dict[tuple[str, str], ASGI] = {
            ("POST", "/v1/chat/completions"): chat,
            ("POST", "/v1/completions"): text,
        }
        self.router = Router(
            [
                Route("/v1/chat/completions", chat, methods=["POST"]),
                Route("/v1/completions", text, methods=["POST"]),
                Route("/v1/requests", behind(native.submit), methods=["POST"]),
                Route("/v1/requests/{request_id}/events", behind(native.events), methods=["GET"]),
                Route("/v1/requests/{request_id}", behind(native.one), methods=["GET", "DELETE"]),
                Route("/v1/models", behind(list_models), methods=["GET"]),
                Route("/v1/models/{name:path}", behind(show_model), methods=["GET"]),
                *(
                    Route(path, free(_health), methods=["GET"])
                    for path in ("/healthz", "/readyz", "/metrics")
                ),
                Route("/", free(_welcome), methods=["GET"]),
                Route("/openapi.json", free(_openapi), methods=["GET"]),
                Route("/version", free(_version), methods=["GET"]),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        scope["exchange"] = exchange
        scope["app"] = self  # the router raises instead of answering in its own shape
        trace(exchange, f"{scope['method']} {scope['path']}")
        with exchange.span:
            try:
                exchange.identify()
                straight = self.straight.get((scope["method"], scope["path"]), self.router)
                await straight(scope, receive, send)
            except Refusal as refusal:
                spread(refusal, self.edge.member.chance)
                await _refuse(exchange, refusal)
            except HTTPException as error:
                await _refuse(exchange, _unrouted(exchange, error))
            except Exception as error:
                logs.error("edge_fault", error=repr(error), request_id=exchange.request_id)
                message = "a fault of this edge; its log says more"
                await _refuse(exchange, Refusal("internal_error", message))
                raise


def spread(refusal: Refusal, chance: random.Random) -> None:
    """Whom an outage sends away in one moment need not come back in one. Admission spreads its own."""
    if refusal.code in OUTAGES and refusal.retry_after is not None:
        refusal.retry_after = chance.randint(refusal.retry_after, 2 * refusal.retry_after)


async def _refuse(exchange: Exchange, refusal: Refusal) -> None:
    exchange.span.set(**{"error.type": refusal.code})
    if not exchange.started:
        await exchange.refuse(refusal)


def _unrouted(exchange: Exchange, error: HTTPException) -> Refusal:
    method, path = exchange.scope["method"], exchange.scope["path"][:100]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        exchange.headers.append((b"allow", allowed.encode()))
        return Refusal("method_not_allowed", f"{path} takes {allowed}, not {method}")
    return Refusal("route_not_found", f"no route {method} {path}")


async def _health(edge: Edge, exchange: Exchange) -> None:
    status, kind, body = health.answer(edge.member, exchange.scope["path"])
    await exchange.answer(status, body, [(b"content-type", kind.encode())])


async def _welcome(edge: Edge, exchange: Exchange) -> None:
    """For a person who has only the address."""
    told = {"name": "Headrace", "version": VERSION, "api": "/v1", **WELCOME}
    await exchange.answer(200, msgspec.json.encode(told))


async def _openapi(edge: Edge, exchange: Exchange) -> None:
    await exchange.answer(200, document())


async def _version(edge: Edge, exchange: Exchange) -> None:
    await exchange.answer(200, b'{"version":"%b"}' % VERSION.encode())
