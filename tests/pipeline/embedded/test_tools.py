"""Kafka's own Java tools and kcat say the same of this broker as of Apache Kafka."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.pipeline.brokers import ApacheKafka, EmbeddedBroker, missing

Tool = Callable[..., str]


def java(bootstrap: str, directory: Path) -> Tool:
    """A function that runs one of Kafka's tools against the broker and returns what it says."""
    directory.mkdir(exist_ok=True)
    port = int(bootstrap.rpartition(":")[2])
    (directory / "cluster.json").write_text(json.dumps({"id": "x", "port": port, "brokers": 1}))
    launcher = Path(os.environ["KAFKA_HOME"]) / "kafka"

    def run(name: str, *arguments: str, given: str = "") -> str:
        line = [sys.executable, str(launcher), "tool", "--dir", str(directory), name, *arguments]
        done = subprocess.run(line, input=given, capture_output=True, text=True, timeout=90)
        return done.stdout

    return run


def session(tool: Tool, directory: Path) -> list[tuple[str, str]]:
    """What a person would do with a topic and a group, and what the tools say to it."""
    of_topic = ("--topic", "tools")
    entity = ("--entity-type", "topics", "--entity-name", "tools")
    cut = directory / "cut.json"
    place = {"topic": "tools", "partition": 0, "offset": 1}
    cut.write_text(json.dumps({"partitions": [place], "version": 1}))
    fed = "".join(f"k:{number}\n" for number in range(5))  # one key: they stay in order
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    return [
        ("create", tool("topics", "--create", *of_topic, "--config", "retention.ms=99999999")),
        ("produce", tool("console-producer", *of_topic, *keys, given=fed)),
        (
            "consume",
            tool(
                "console-consumer",
                *of_topic,
                "--from-beginning",
                "--max-messages",
                "5",
                "--timeout-ms",
                "30000",
                "--group",
                "tools-group",
                "--formatter-property",
                "print.key=true",
            ),
        ),
        ("describe group", tool("groups", "--describe", "--group", "tools-group")),
        (
            "reset",
            tool(
                "groups",
                "--group",
                "tools-group",
                *of_topic,
                "--reset-offsets",
                "--to-earliest",
                "--execute",
            ),
        ),
        (
            "perf",
            tool(
                "perf-producer",
                *of_topic,
                "--num-records",
                "1000",
                "--record-size",
                "500",
                "--throughput",
                "-1",
            ),
        ),
        ("cut", tool("delete-records", "--offset-json-file", str(cut))),
        ("alter", tool("configs", "--alter", *entity, "--add-config", "max.message.bytes=4000")),
        ("describe configs", tool("configs", "--describe", *entity)),
        ("offsets", tool("offsets", *of_topic)),
        ("describe topic", tool("topics", "--describe", *of_topic)),
        ("delete", tool("topics", "--delete", *of_topic)),
    ]


def comparable(said: str) -> str:
    """Rates, ids and configs that only one has aside."""
    said = re.sub(r"TopicId: \S+\s*", "", said)  # topic ids come with Metadata 10
    said = re.sub(r"min.insync.replicas=1,?|segment.bytes=\d+,?", "", said)
    said = re.sub(
        r"(?<=Configs: )\S+", lambda c: ",".join(sorted(filter(None, c[0].split(",")))), said
    )  # a set
    said = re.sub(r"DYNAMIC_BROKER_CONFIG:\S+ |STATIC_BROKER_CONFIG:\S+ ", "", said)
    said = re.sub(r"Elr: \S*\s*LastKnownElr: \S*", "", said)
    said = re.sub(r"\d+(\.\d+)? (records/sec|MB/sec|ms)[^\n]*", "", said)
    lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    return "\n".join(line for line in lines if line)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)  # two dozen starts of Java on a busy machine
def test_javas_tools_say_the_same(
    embedded_broker: EmbeddedBroker, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    tools = (
        java(embedded_broker.bootstrap, tmp_path / "ours"),
        java(apache_kafka.bootstrap, tmp_path / "theirs"),
    )
    with ThreadPoolExecutor() as both:
        ours, theirs = both.map(lambda tool: session(tool, tmp_path), tools)
    for (what, our), (_, their) in zip(ours, theirs, strict=True):
        assert (what, comparable(our)) == (what, comparable(their))
    assert "k\t4" in dict(ours)["consume"]


def kcat(bootstrap: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


def kcat_session(bootstrap: str, tool: Callable[[str], None]) -> list[str]:
    tool("kcat-topic")
    said = []
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        kcat(
            bootstrap,
            "-P",
            "-t",
            "kcat-topic",
            "-p",
            "0",
            "-K:",
            "-H",
            "h=v",
            "-z",
            codec,
            "-X",
            f"enable.idempotence={str(number % 2 == 0).lower()}",
            given="a:1\nb:2\nc:3\n",
        )
    form = ("-f", "%p %o %k %s %h\n")
    said.append(kcat(bootstrap, "-C", "-t", "kcat-topic", "-o", "beginning", "-e", "-q", *form))
    said.append(kcat(bootstrap, "-C", "-t", "kcat-topic", "-o", "-2", "-e", "-q", *form))
    said.append(kcat(bootstrap, "-Q", "-t", "kcat-topic:0:-1", "-t", "kcat-topic:0:-2"))
    said.append(kcat(bootstrap, "-L", "-t", "kcat-topic").replace(bootstrap, "<address>"))
    return said


@pytest.mark.kafka
def test_kcat_says_the_same(embedded_broker: EmbeddedBroker, apache_kafka: ApacheKafka) -> None:
    if shutil.which("kcat") is None:
        missing("kcat is not on the PATH")
    from tests.pipeline.embedded.test_librdkafka import create

    ours = kcat_session(embedded_broker.bootstrap, lambda t: create(embedded_broker.bootstrap, t))
    theirs = kcat_session(apache_kafka.bootstrap, lambda t: create(apache_kafka.bootstrap, t))
    assert ours == theirs
    assert ours[0].count("\n") == 15
