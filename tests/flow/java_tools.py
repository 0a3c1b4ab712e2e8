"""Apache Kafka's own command-line tools, against any broker."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.pipeline.brokers import missing

CLASSES = {
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}


def kafka_tool(name: str, bootstrap: str, *arguments: str, given: str = "") -> str:
    """Run a tool and return what it printed."""
    home = os.environ.get("KAFKA_HOME")
    if not home or shutil.which("java") is None:
        missing("KAFKA_HOME or Java is not there: Kafka's own tools cannot run")
    libs = f"{Path(home) / 'libs'}/*"
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", libs, CLASSES[name], "--bootstrap-server", bootstrap, *arguments],
        input=given, capture_output=True, text=True, errors="replace", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
