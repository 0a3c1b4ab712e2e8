"""Dead letters: the record byte for byte on `hr.dlq.<stage>`, and why, under Kafka's own header names.

`__dlq.errors.*` are the names of KIP-1191 (share groups), so that tools for those read ours too.
"""

from .log import Outgoing, Record
from .stage import DeadLetter

PREFIX = "__dlq.errors."
MESSAGE_LIMIT = 4096  # bytes of the message: it may quote the record
# a full record (1 MiB), its headers and the reason; the topic's own limit is 2 MiB
REQUEST_LIMIT = 2 * 1_048_576 + 65_536


def dead_letter(
    topic: str, record: Record, why: DeadLetter, *, group: str, tries: int, exception: str = ""
) -> Outgoing:
    """`record` for the dead-letter `topic`: value, key (also null) and all headers as they came,
    duplicates too and in order; the reasons follow."""
    reasons = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": group,
        "delivery.count": tries,
        "message": f"{why.reason}: {why.message}" if why.message else why.reason,
        "exception.class": exception or why.reason,
    }
    headers = tuple(
        (PREFIX + name, str(reason).encode()[:MESSAGE_LIMIT]) for name, reason in reasons.items()
    )
    return Outgoing(topic, record.value, key=record.key, headers=record.headers + headers)


def reasons_only(letter: Outgoing) -> Outgoing:
    """A letter that its topic does not take whole: where the record was, and why."""
    headers = tuple(pair for pair in letter.headers if pair[0].startswith(PREFIX))
    return letter._replace(value=None, headers=headers)
