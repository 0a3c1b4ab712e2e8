"""A cluster behind TLS that wants a name and a password, and does not let everybody do everything."""

from collections.abc import AsyncIterator

import pytest

from pipeline.declare import declare
from pipeline.kafka import KafkaLog, connect
from pipeline.log import LogUnavailable, NotAuthorized, Outgoing, TopicPartition, TopicSpec
from pipeline.settings import KafkaSettings
from pipeline.topics import Topics
from tests.pipeline import brokers
from tests.pipeline.contract.stand import WallClock, read, write

pytestmark = pytest.mark.kafka


def settings(cluster: brokers.ApacheKafka, name: str, password: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=cluster.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=str(cluster.directory / "cert.pem"),
        sasl_username=name,
        sasl_password=password,
    )


@pytest.fixture
async def admin(guarded_kafka: brokers.ApacheKafka) -> AsyncIterator[KafkaLog]:
    log = await connect(settings(guarded_kafka, "admin", "secret"), WallClock(), client_id="admin")
    yield log
    await log.close()


@pytest.fixture
async def guest(guarded_kafka: brokers.ApacheKafka) -> AsyncIterator[KafkaLog]:
    log = await connect(settings(guarded_kafka, "guest", "guest"), WallClock(), client_id="guest")
    yield log
    await log.close()


async def test_who_has_the_rights_writes_and_reads(admin: KafkaLog) -> None:
    await admin.admin.create_topics([TopicSpec("open", 1)])
    await write(admin, Outgoing("open", b"v"))
    reader = await admin.reader({TopicPartition("open", 0): "start"})
    assert len(await read(reader, 1)) == 1


async def test_a_wrong_password_is_said_at_once(guarded_kafka: brokers.ApacheKafka) -> None:
    with pytest.raises(NotAuthorized, match="Authentication"):
        await connect(settings(guarded_kafka, "admin", "wrong"), WallClock(), client_id="x")


async def test_a_broker_with_an_unknown_certificate_is_not_trusted(
    guarded_kafka: brokers.ApacheKafka,
) -> None:
    trusting_others = settings(guarded_kafka, "admin", "secret")
    trusting_others.ssl_cafile = ""
    with pytest.raises(LogUnavailable, match="certificate verify failed"):
        await connect(trusting_others, WallClock(), client_id="x", wait=2.0)


async def test_a_missing_right_names_the_topics(guest: KafkaLog) -> None:
    with pytest.raises(
        NotAuthorized, match=r"right Create is missing for .*hr\.dlq\.delivery.*hr\.requests"
    ):
        await declare(guest, Topics())
