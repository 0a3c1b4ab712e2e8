"""`/v1/models`: what this installation serves."""

from typing import Any

import msgspec

from schemas.errors import Refusal
from schemas.models import Model

from .edge import Edge
from .exchange import Exchange


def model_body(model: Model) -> dict[str, Any]:
    """OpenAI's object, with what a client of ours needs to know."""
    return {
        "id": model.name,
        "object": "model",
        "created": model.created // 1000,
        "owned_by": "headrace",
        "max_model_len": model.context,
        "revision": model.revision,
        "engine": model.engine,
    }


async def list_models(edge: Edge, exchange: Exchange) -> None:
    data = [model_body(edge.models.items[name]) for name in sorted(edge.models.items)]
    await exchange.answer(200, msgspec.json.encode({"object": "list", "data": data}))


async def show_model(edge: Edge, exchange: Exchange, name: str) -> None:
    if not name:
        raise Refusal("route_not_found", "no route GET /v1/models/: leave the last / out")
    model = edge.models.items.get(name)
    if model is None:
        known = ", ".join(sorted(edge.models.items)) or "none"
        raise Refusal(
            "model_not_found", f"there is no model {name[:100]!r}; there is: {known}", param="model"
        )
    await exchange.answer(200, msgspec.json.encode(model_body(model)))
