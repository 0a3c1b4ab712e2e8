"""Requests under way while something happens to the processes, and what must hold for each of them."""

import asyncio
import json
from typing import Any

import httpx

from tests.flow.installation import Installation
from tests.flow.log_reading import decoded, records

PATIENCE = 200.0  # s: Apache Kafka takes most of a minute to come back on a loaded machine


class Underway:
    """Set once half of the streams have begun to speak: then a kill hits work."""

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.begun: set[str] = set()
        self.half = asyncio.Event()

    def speaks(self, request_id: str) -> None:
        self.begun.add(request_id)
        if len(self.begun) >= self.streams // 2:
            self.half.set()


async def submit(http: httpx.AsyncClient, base: str, number: int, tokens: int) -> str:
    answer = await http.post(
        f"{base}/v1/requests",
        json={"model": "null", "prompt": f"count {number}", "max_tokens": tokens, "seed": number},
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def follow(
    http: httpx.AsyncClient, base: str, request_id: str, underway: Underway
) -> list[dict[str, Any]]:
    """The native events of a request, resumed wherever the connection breaks."""
    events: list[dict[str, Any]] = []
    path, last = f"{base}/v1/requests/{request_id}/events", ""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while loop.time() < deadline:
        headers = {"Last-Event-ID": last} if last else {}
        try:
            async with http.stream("GET", path, headers=headers) as answer:
                if answer.status_code == 200:
                    event: dict[str, str] = {}
                    async for line in answer.aiter_lines():
                        name, _, value = line.partition(": ")
                        if line:
                            event[name] = value
                            continue
                        if "data" in event:
                            kind = event.get("event", "message")
                            said = json.loads(event["data"])
                            if kind == "chunk":
                                underway.speaks(request_id)
                            events.append({**said, "event": kind, "frame": event.get("id")})
                            last = event.get("id", last)
                        if event.get("event") == "done":
                            return events
                        event = {}
        except httpx.HTTPError:
            pass  # the edge died: go on at the next one, which is the same address again
        await asyncio.sleep(0.1)
    raise AssertionError(f"{request_id} never ended: {events[-3:]}")


def check_stream(request_id: str, events: list[dict[str, Any]], tokens: int) -> None:
    """Gapless, without repeats, and equal to the outcome."""
    done = events[-1]
    assert done["event"] == "done" and done["outcome"] == "completed", done
    assert [e["event"] for e in events].count("done") == 1
    text = "".join(
        e["choices"][0]["text"] for e in events if e["event"] == "chunk" and e["choices"]
    )
    assert text == done["choices"][0]["text"], request_id
    assert done["usage"]["completion_tokens"] == tokens
    ids = [e["frame"] for e in events if e["frame"]]
    assert len(set(ids)) == len(ids), "a frame came twice"


def outcomes_of(fleet: Installation, wanted: set[str]) -> dict[str, list[tuple[str, int]]]:
    """What hr.results says of each request: (outcome, output offset) a record, until all are there."""
    found: dict[str, list[tuple[str, int]]] = {each: [] for each in wanted}
    for message in records(fleet.kafka, fleet.topic("results")):
        result = decoded(message)
        if result["id"] in found:
            found[result["id"]].append((result["outcome"], result["output"]))
        if all(found.values()):
            break
    return found
