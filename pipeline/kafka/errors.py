"""What the client library raises, in the words of the log port."""

from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka import errors as kafka

from ..log import (
    LogError,
    LogUnavailable,
    NotAuthorized,
    NotOwner,
    RecordTooLarge,
    UnknownTopic,
)

FORBIDDEN = (
    kafka.TopicAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.ClusterAuthorizationFailedError,
    kafka.SaslAuthenticationFailed,
)
TOO_LARGE = (
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.RecordTooLargeError,
)
NOT_OWNER = (
    kafka.CommitFailedError,
    kafka.IllegalStateError,
    kafka.IllegalGenerationError,
    kafka.UnknownMemberIdError,
    kafka.RebalanceInProgressError,
)
# the record or the order itself is at fault: to repeat it would not help
REFUSED = (
    kafka.InvalidTimestampError,
    kafka.PolicyViolationError,
    kafka.InvalidPartitionsError,
    kafka.InvalidReplicationFactorError,
    kafka.InvalidConfigurationError,
    kafka.InvalidTopicError,
    kafka.OffsetMetadataTooLargeError,
)


def translate(error: Exception, what: str) -> LogError:
    """`what` says what was asked, so that the message names topic or group."""
    text = f"{what}: {error!r}"
    if isinstance(error, FORBIDDEN):
        return NotAuthorized(text)
    if isinstance(error, kafka.UnknownTopicOrPartitionError):
        return UnknownTopic(text)
    if isinstance(error, TOO_LARGE):
        return RecordTooLarge(text)
    if isinstance(error, NOT_OWNER):
        return NotOwner(text)
    if isinstance(error, REFUSED):
        return LogError(text)
    return LogUnavailable(text)


@contextmanager
def translated(what: str) -> Iterator[None]:
    try:
        yield
    except (kafka.KafkaError, TimeoutError, OSError) as error:
        raise translate(error, what) from error
