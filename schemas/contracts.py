"""The contracts as files: a JSON Schema of every record, and an AsyncAPI 3 document of the topics.

Schema and meaning come from the record types themselves, so that they cannot differ from the code.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from .codec import name_of, tag_of
from .control import Attach, Detach, Load, Unload, Wake
from .ledger import Cancel, Lease, Output, Released
from .meaning import meaning_of
from .models import Model
from .request import Request
from .result import Result
from .status import Status, Wanted
from .tokens import Admitted, Chunk, End, Open
from .work import Order, Ready

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MINOR = 0  # raised when a field with a default is added; a new tag is a new major

Record = type[msgspec.Struct]


class Channel(NamedTuple):
    """One topic, or a family of topics."""

    address: str  # below the prefix
    key: str
    records: tuple[Record, ...]
    about: str
    public: bool = False  # outsiders may rely on it


CHANNELS = (
    Channel(
        "requests",
        "anything, or the request id",
        (Request,),
        "What is asked. JSON: the body of a chat or text completion; MessagePack: request/1.",
        public=True,
    ),
    Channel("ready.{lane}", "request id", (Ready,), "Tokenised and budgeted: the queue of a lane."),
    Channel("work", "request id", (Order,), "Orders, in the partition a worker has named."),
    Channel(
        "tokens",
        "request id",
        (Admitted, Open, Chunk, End),
        "What is said of a request, in the encoding in which it came. Fold it in offset order.",
        public=True,
    ),
    Channel(
        "ledger",
        "request id",
        (Lease, Output, Released, Cancel),
        "Who runs a request and how it ended. Fold it in offset order.",
    ),
    Channel(
        "results",
        "request id",
        (Result,),
        "How a request ended. May be repeated, always with the same output: take the first.",
        public=True,
    ),
    Channel(
        "waiting.{model}", "request id", (Ready,), "Ready requests whose model has no live worker."
    ),
    Channel(
        "status", "member id, or wanted/ and one", (Status, Wanted), "Every member (compacted)."
    ),
    Channel("models", "model name", (Model,), "The model registry (compacted)."),
    Channel(
        "control", "request id or member id", (Wake, Attach, Detach, Load, Unload), "Wake-ups."
    ),
)
PARAMETERS = {
    "lane": {"description": "gold, silver or bronze", "enum": ["gold", "silver", "bronze"]},
    "model": {"description": "A model's name"},
}
HEADERS = {
    "content-type": "application/json or application/x-msgpack",
    "type": "The record's tag, as request/1",
    "request-id": "The request it belongs to",
    "attempt": "Number of the attempt",
    "tenant": "Whose request it is",
    "lane": "gold, silver or bronze",
    "deadline": "Milliseconds since the epoch",
    "correlation-id": "The publisher's own, echoed on every event and on the result",
    "traceparent": "W3C trace context",
    "tracestate": "W3C trace context",
}


def records() -> list[Record]:
    """Every record type, each once."""
    return list(dict.fromkeys(record for channel in CHANNELS for record in channel.records))


def schema_of(record: Record) -> dict[str, Any]:
    """The JSON Schema of one record with its own definitions. `title` of a position is its name."""
    (top,), parts = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    del top  # a reference to the record itself
    definitions = {name: _with_meaning(name, part) for name, part in parts.items()}
    own = definitions.pop(record.__name__)
    schema = {
        "$schema": DIALECT,
        "$id": file_of(record),
        **own,
        "x-ai-contract-version": version_of(record),
    }
    return schema | ({"$defs": definitions} if definitions else {})


def version_of(record: Record) -> str:
    """Major from the tag, minor from here."""
    return f"{tag_of(record).partition('/')[2]}.{MINOR}"


def file_of(record: Record) -> str:
    return f"{tag_of(record).replace('/', '-')}.json"


def asyncapi(prefix: str = "hr") -> dict[str, Any]:
    """The topics as an AsyncAPI 3 document; payloads refer to the schema files beside it."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Headrace",
            "version": f"1.{MINOR}",
            "description": "LLM inference on Kafka: what is on its topics.",
        },
        "defaultContentType": "application/x-msgpack",
        "channels": {_channel_id(each): _channel(each, prefix) for each in CHANNELS},
        "operations": _operations(),
        "components": {
            "messages": {_message_id(each): _message(each) for each in records()},
            "messageTraits": {"headers": {"headers": _headers()}},
        },
    }


def export(directory: Path, prefix: str = "hr") -> list[Path]:
    """Write them all; the paths written, `asyncapi.json` first. Raises OSError."""
    (directory / "schemas").mkdir(parents=True, exist_ok=True)
    documents = {directory / "asyncapi.json": asyncapi(prefix)}
    for record in records():
        documents[directory / "schemas" / file_of(record)] = schema_of(record)
    for path, document in documents.items():
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return list(documents)


def _with_meaning(record: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Each field gets its `x-ai-semantic-type`; a positional one its name, too."""
    if "prefixItems" in schema:
        names = _positions(record)
        items = [
            {"title": name, **item, **_meaning(record, name)}
            for name, item in zip(names, schema["prefixItems"], strict=True)
        ]
        return {**schema, "prefixItems": items}
    if "properties" not in schema:
        return schema
    fields = {
        name: {**field, **({} if name == "type" and "enum" in field else _meaning(record, name))}
        for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _meaning(record: str, field: str) -> dict[str, Any]:
    meaning = meaning_of(record, field)
    return {} if meaning is None or field == "tag" else {"x-ai-semantic-type": meaning}


def _positions(record: str) -> list[str]:
    """Names of the positions of an array-like record, its tag first."""
    from . import tokens, work

    kind: Record = getattr(tokens, record, None) or getattr(work, record)
    tag = ["tag"] if kind.__struct_config__.tag is not None else []
    return tag + [field.name for field in msgspec.structs.fields(kind)]


def _channel_id(channel: Channel) -> str:
    return channel.address.partition(".")[0]


def _message_id(record: Record) -> str:
    return name_of(tag_of(record))


def _channel(channel: Channel, prefix: str) -> dict[str, Any]:
    used = {name: about for name, about in PARAMETERS.items() if f"{{{name}}}" in channel.address}
    said = {
        "address": f"{prefix}.{channel.address}",
        "description": channel.about,
        "messages": {
            _message_id(record): {"$ref": f"#/components/messages/{_message_id(record)}"}
            for record in channel.records
        },
        "x-kafka-key": channel.key,
        "x-audience": "public" if channel.public else "internal",
    }
    return said | ({"parameters": used} if used else {})


def _operations() -> dict[str, Any]:
    """What an outsider does: publish requests, read tokens and results."""
    named = {channel.address: channel for channel in CHANNELS if channel.public}
    verbs = {
        "requests": ("ask", "receive"),
        "tokens": ("follow", "send"),
        "results": ("hear", "send"),
    }
    return {
        verbs[address][0]: {
            "action": verbs[address][1],
            "channel": {"$ref": f"#/channels/{_channel_id(channel)}"},
            "summary": channel.about,
        }
        for address, channel in named.items()
    }


def _message(record: Record) -> dict[str, Any]:
    return {
        "name": tag_of(record),
        "summary": (record.__doc__ or "").strip().partition("\n")[0],
        "traits": [{"$ref": "#/components/messageTraits/headers"}],
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": f"./schemas/{file_of(record)}"},
        },
        "x-ai-contract-version": version_of(record),
    }


def _headers() -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in HEADERS.items()}
    return {"type": "object", "properties": properties}
