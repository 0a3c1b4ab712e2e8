"""Contracts: every record has a schema, a meaning, and bytes that stay readable."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.topics import Topics
from schemas.codec import JSON, MSGPACK, encode, tag_of
from schemas.contracts import CHANNELS, HEADERS, asyncapi, export, records, schema_of
from schemas.tokens import Chunk
from tests.schemas.golden_records import example, files, read

RECORDS = records()
NAMES = [tag_of(record) for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
@pytest.mark.parametrize("encoding", [MSGPACK, JSON])
def test_todays_bytes_are_the_golden_ones(record: Any, encoding: str) -> None:
    known = files(record, encoding)
    assert known, "python -m tests.schemas.golden_records adds them"
    assert encode(example(record), encoding) == known[-1].read_bytes()


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_bytes_of_every_earlier_version_can_be_read(record: Any) -> None:
    for packed, text in zip(files(record, MSGPACK), files(record, JSON), strict=True):
        assert read(record, packed) == read(record, text)
        assert tag_of(read(record, packed)) == tag_of(record)


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_every_field_has_a_meaning(record: Any) -> None:
    schema = schema_of(record)
    assert schema["x-ai-contract-version"].split(".")[0] == tag_of(record).split("/")[1]
    for name, part in {record.__name__: schema, **schema.get("$defs", {})}.items():
        for field, said in part.get("properties", {}).items():
            if field == "type" and "enum" in said:
                continue
            assert said.get("x-ai-semantic-type"), f"{name}.{field} in schemas/meaning.py"
        for item in part.get("prefixItems", []):
            if item["title"] != "tag":
                assert item.get("x-ai-semantic-type"), f"{name}.{item['title']}"


def test_every_topic_that_exists_has_a_contract() -> None:
    addresses = {f"hr.{channel.address}" for channel in CHANNELS}
    for spec in Topics().all():
        if spec.name.startswith("hr.dlq."):
            continue  # whatever came
        family = spec.name.rsplit(".", 1)[0] + ".{lane}"
        assert spec.name in addresses or family in addresses


def test_the_contracts_are_written_as_files_that_refer_to_each_other(tmp_path: Path) -> None:
    first, *others = export(tmp_path / "out", prefix="acme")
    document = json.loads(first.read_text("utf-8"))
    assert document["asyncapi"] == "3.0.0"
    assert document["channels"]["requests"]["address"] == "acme.requests"
    referred = {
        first.parent / message["payload"]["schema"]["$ref"]
        for message in document["components"]["messages"].values()
    }
    assert {path.resolve() for path in referred} == {path.resolve() for path in others}
    for path in others:
        _check_references(json.loads(path.read_text("utf-8")))
    _check_references(document)


def test_a_request_schema_tells_ranges() -> None:
    properties = schema_of(next(r for r in RECORDS if r.__name__ == "Request"))["properties"]
    assert properties["temperature"]["maximum"] == 2
    assert properties["stop"]["maxItems"] == 16


def test_positions_of_a_chunk_have_names() -> None:
    items = schema_of(Chunk)["prefixItems"]
    assert [item["title"] for item in items][:4] == ["tag", "k", "ids", "attempt"]
    assert len(items) == 1 + len(msgspec.structs.fields(Chunk))


def test_the_headers_are_those_of_the_codec() -> None:
    from schemas.codec import headers_of

    given = dict.fromkeys(
        ["request_id", "tenant", "lane", "correlation_id", "traceparent", "tracestate"], "x"
    )
    written = headers_of("x/1", attempt=1, deadline=1, **given)
    assert {name for name, _ in written} == HEADERS.keys()
    assert asyncapi()["components"]["messageTraits"]


def _check_references(document: dict[str, Any]) -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                found: Any = document
                for step in reference[2:].split("/"):
                    found = found[step]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)
