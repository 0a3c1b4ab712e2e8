"""Which function answers which API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pipeline.embedded import (
    handle_configs,
    handle_fetch,
    handle_groups,
    handle_log,
    handle_offsets,
    handle_produce,
    handle_topics,
)
from pipeline.embedded.broker import Broker, Call
from pipeline.embedded.errors import Code
from pipeline.embedded.protocol import API_VERSIONS, APIS, Answer

Handler = Callable[[Broker, Any, Call], Awaitable[Answer | None]]


async def api_versions(broker: Broker, request: Any, call: Call) -> Answer:
    """What is served; a client with a newer version asks again with version 0."""
    return {
        "error_code": Code.none if request is not None else Code.unsupported_version,
        "api_keys": [
            {"api_key": key, "min_version": api.least, "max_version": api.most}
            for key, api in APIS.items()
        ],
    }


_MODULES = (
    handle_produce,
    handle_fetch,
    handle_log,
    handle_topics,
    handle_configs,
    handle_groups,
    handle_offsets,
)
HANDLERS: dict[int, Handler] = {
    key: api_versions
    if key == API_VERSIONS
    else next(getattr(module, api.name) for module in _MODULES if hasattr(module, api.name))
    for key, api in APIS.items()
}
