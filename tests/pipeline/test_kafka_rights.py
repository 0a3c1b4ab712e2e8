"""A cluster that wants a name and a password, and does not let everybody do everything."""

from collections.abc import AsyncIterator, Iterator

import pytest

from pipeline.declare import declare
from pipeline.kafka import KafkaLog, connect
from pipeline.log import NotAuthorized, Outgoing, TopicPartition, TopicSpec
from pipeline.settings import KafkaSettings
from pipeline.topics import Topics
from tests.pipeline import brokers
from tests.pipeline.log_contract import WallClock, read, write

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret" user_guest="guest";'
)
PROPERTIES = (
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f"listener.name.plaintext.plain.sasl.jaas.config={JAAS}",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin;User:ANONYMOUS",  # the controller's own listener knows no names
)

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.ApacheKafka]:
    with brokers.apache_kafka(tmp_path_factory.mktemp("guarded"), properties=PROPERTIES) as cluster:
        yield cluster


def settings(cluster: brokers.ApacheKafka, name: str, password: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=cluster.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_username=name,
        sasl_password=password,
    )


@pytest.fixture
async def admin(guarded: brokers.ApacheKafka) -> AsyncIterator[KafkaLog]:
    log = await connect(settings(guarded, "admin", "secret"), WallClock(), client_id="admin")
    yield log
    await log.close()


@pytest.fixture
async def guest(guarded: brokers.ApacheKafka) -> AsyncIterator[KafkaLog]:
    log = await connect(settings(guarded, "guest", "guest"), WallClock(), client_id="guest")
    yield log
    await log.close()


async def test_who_has_the_rights_writes_and_reads(admin: KafkaLog) -> None:
    await admin.admin.create_topics([TopicSpec("open", 1)])
    await write(admin, Outgoing("open", b"v"))
    reader = await admin.reader({TopicPartition("open", 0): "start"})
    assert len(await read(reader, 1)) == 1


async def test_a_wrong_password_is_said_at_once(guarded: brokers.ApacheKafka) -> None:
    with pytest.raises(NotAuthorized, match="Authentication"):
        await connect(settings(guarded, "admin", "wrong"), WallClock(), client_id="x")


async def test_a_missing_right_names_the_topics(guest: KafkaLog) -> None:
    with pytest.raises(
        NotAuthorized, match=r"right Create is missing for .*hr\.dlq\.delivery.*hr\.requests"
    ):
        await declare(guest, Topics())
