"""Bad records among good ones: every bad one is kept as it came, and every good one is answered.

python -m tests.flow.flood --count 1000 [--broker embedded,apache]
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message, Producer

from schemas.ids import mint
from tests.chaos.topics import Marks, ends, since
from tests.flow.conftest import SMALL_TOPICS
from tests.flow.installation import Installation, installation
from tests.flow.log_reading import decoded, header
from tests.flow.malformed import TOPICS, Bad, malformed, now
from tests.flow.waiting import until
from tests.pipeline.brokers import apache_kafka

GOOD = 10  # to each bad one
STAGES = ("ingress", "orchestration", "worker", "delivery")
LIMIT = 120.0  # s for all of it
MARK = "x-bad"  # the header by which a bad record is found again


@dataclass
class Heard:
    """What the results and the dead letters say since the flood began."""

    outcomes: dict[str, set[tuple[str, str, int]]] = field(default_factory=lambda: defaultdict(set))
    letters: dict[tuple[str, str], Message] = field(default_factory=dict)  # (stage, mark) → letter
    marks: dict[str, Marks] = field(default_factory=dict)

    def listen(self, made: Installation) -> None:
        """Everything new since the last time."""
        for name in ("results", *(f"dlq.{stage}" for stage in STAGES)):
            topic = made.topic(name)
            begun, reached = self.marks.get(name, {}), ends(made.kafka, topic)
            if begun == reached:
                continue
            for message in since(made.kafka, topic, begun):
                self._hear(name, message)
                at = message.partition() or 0
                reached[at] = max(reached[at], (message.offset() or 0) + 1)
            self.marks[name] = reached

    def _hear(self, name: str, message: Message) -> None:
        if name != "results":
            self.letters[name.removeprefix("dlq."), header(message, MARK) or ""] = message
            return
        result = decoded(message)
        error = (result.get("error") or {}).get("code", "")
        told = result["outcome"], error, result["output"]
        for each in (result["id"], result.get("correlation_id")):
            if each:
                self.outcomes[each].add(told)


def inboxes(made: Installation) -> list[int]:
    """The partitions of the work topic that some worker reads."""
    said = (decoded(m) for m in since(made.kafka, made.topic("status"), {}) if m.value())
    return sorted({each["worker"]["inbox"] for each in said if each.get("worker")})


def question(number: int, request_id: str) -> bytes:
    body = {"model": "null", "prompt": f"count {number}", "max_tokens": 2, "id": request_id}
    return json.dumps(body).encode()


def flood(made: Installation, topic: str, count: int, seed: int = 1) -> list[str]:
    """`count` bad records on a topic among ten times as many good requests; what is wrong then."""
    heard = Heard()
    heard.marks = {
        name: ends(made.kafka, made.topic(name))
        for name in ("results", *(f"dlq.{stage}" for stage in STAGES))
    }
    producer = Producer({"bootstrap.servers": made.kafka, "acks": "all", "linger.ms": 5})
    used = mint(now(), random.Random())
    send(producer, made.topic("requests"), Bad(question(0, used), used.encode()))
    producer.flush(30)
    until(lambda: heard.listen(made) or used in heard.outcomes, LIMIT)

    bad = malformed(
        topic,
        seed,
        count,
        used=used,
        inboxes=inboxes(made),
        partitions=len(ends(made.kafka, made.topic("ledger"))),
    )
    run, good = f"{topic}-{now()}", []
    for number, each in enumerate(bad):
        mark = f"{run}-{number}"
        each.headers.append((MARK, mark.encode()))
        if topic == "requests":
            each.headers.append(("correlation-id", mark.encode()))
        send(producer, made.topic(topic), each)
        for _ in range(GOOD):
            request_id = mint(now(), random.Random())
            good.append(request_id)
            asked = question(len(good), request_id)
            send(producer, made.topic("requests"), Bad(asked, request_id.encode()))
    assert producer.flush(60) == 0

    owed = {*good, *(each.ends for each in bad if each.ends)}
    kept = {(each.letter, f"{run}-{number}") for number, each in enumerate(bad)}
    if topic == "requests":
        owed |= {mark for _, mark in kept}
    deadline = time.monotonic() + LIMIT
    while (owed - heard.outcomes.keys() or kept - heard.letters.keys()) and (
        time.monotonic() < deadline
    ):
        heard.listen(made)
        time.sleep(0.2)
    wrong = [f"{each}: no outcome" for each in owed - heard.outcomes.keys()]
    wrong += [f"{each}: {told}" for each, told in heard.outcomes.items() if len(told) > 1]
    for each in good:
        if (told := heard.outcomes[each]) and {one[0] for one in told} != {"completed"}:
            wrong.append(f"a good one, {each}, ended as {told}")
    for number, each in enumerate(bad):
        wrong += judged(each, f"{run}-{number}", heard, topic == "requests")
    return wrong


def send(producer: Producer, topic: str, record: Bad) -> None:
    where = {} if record.partition is None else {"partition": record.partition}
    while True:
        try:
            producer.produce(topic, record.value, record.key, headers=record.headers, **where)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def judged(bad: Bad, mark: str, heard: Heard, at_the_door: bool) -> list[str]:
    """What is wrong with the fate of one bad record."""
    said = f"{mark} ({(bad.value or b'null')[:40]!r}, {str(bad.headers)[:150]})"
    wrong = []
    letter = heard.letters.get((bad.letter, mark))
    if letter is None:
        wrong.append(f"{said}: not on the dead letters of {bad.letter}")
    else:
        found = letter.headers() or []
        if letter.value() != bad.value or letter.key() != bad.key:
            wrong.append(f"{said}: its letter is not what was sent")
        if found[: len(bad.headers)] != bad.headers:
            wrong.append(f"{said}: its letter has other headers: {str(found)[:300]}")
        if not header(letter, "__dlq.errors.message"):
            wrong.append(f"{said}: its letter gives no reason")
    if at_the_door:
        told = {one[:2] for one in heard.outcomes[mark]}
        if told != {("refused", "invalid_record")}:
            wrong.append(f"{said}: ended as {told}")
    if bad.ends:
        told = {one[:2] for one in heard.outcomes[bad.ends]}
        if told != {("failed", "unreadable")}:
            wrong.append(f"{said}: its request ended as {told}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flow.flood", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="bad records a topic")
    parser.add_argument("--broker", default="embedded,apache", help="which, with commas")
    parser.add_argument("--topics", default=",".join(TOPICS), help="which, with commas")
    options = parser.parse_args()
    failed = 0
    for broker in options.broker.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="flood-", ignore_cleanup_errors=True) as folder,
            running(Path(folder), broker) as made,
        ):
            for topic in options.topics.split(","):
                begun = time.monotonic()
                wrong = flood(made, topic, options.count)
                failed += len(wrong)
                took = time.monotonic() - begun
                print(f"{broker}, {topic}: {options.count} bad among {GOOD * options.count} good, "
                      f"{took:.0f} s, {len(wrong)} wrong", flush=True)  # fmt: skip
                for each in wrong[:20]:
                    print(f"  {each}", flush=True)
                if wrong:
                    print(made.words(20), file=sys.stderr)
    return 1 if failed else 0


@contextmanager
def running(folder: Path, broker: str) -> Iterator[Installation]:
    environment = {**SMALL_TOPICS, "HEADRACE_WORKER_ENGINE": "null", "HEADRACE_UP_WORKERS": "2"}
    with ExitStack() as stack:
        cluster = None
        if broker == "apache":
            cluster = stack.enter_context(apache_kafka(folder / "kafka"))
        yield stack.enter_context(installation(folder / "home", broker, cluster, **environment))


if __name__ == "__main__":
    sys.exit(main())
