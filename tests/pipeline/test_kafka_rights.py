"""A cluster behind TLS that wants a name and a password, and does not let everybody do everything."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pipeline.declare import declare
from pipeline.kafka import KafkaLog, connect
from pipeline.log import LogUnavailable, NotAuthorized, Outgoing, TopicPartition, TopicSpec
from pipeline.settings import KafkaSettings
from pipeline.topics import Topics
from tests.pipeline import brokers
from tests.pipeline.contract.stand import WallClock, read, write

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret" user_guest="guest";'
)
PROPERTIES = (
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
    "ssl.keystore.type=PEM",
    "ssl.truststore.type=PEM",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f"listener.name.plaintext.plain.sasl.jaas.config={JAAS}",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin;User:ANONYMOUS",  # the controller's own listener knows no names
)

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.ApacheKafka]:
    directory = tmp_path_factory.mktemp("guarded")
    pair = certificate(directory)
    own = f"ssl.truststore.location={directory / 'cert.pem'}"  # it checks itself at the start
    properties = (*PROPERTIES, f"ssl.keystore.location={pair}", own)
    with brokers.apache_kafka(directory, properties=properties) as cluster:
        yield cluster


def certificate(directory: Path) -> Path:
    """A key and a certificate of its own making, in one PEM file as Kafka wants it."""
    key, cert, pair = (directory / name for name in ("key.pem", "cert.pem", "pair.pem"))
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    line += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*line, "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        brokers.missing("openssl is not on the PATH")
    pair.write_text(key.read_text() + cert.read_text())
    return pair


def settings(cluster: brokers.ApacheKafka, name: str, password: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=cluster.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=str(cluster.directory / "cert.pem"),
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


async def test_a_broker_with_an_unknown_certificate_is_not_trusted(
    guarded: brokers.ApacheKafka,
) -> None:
    trusting_others = settings(guarded, "admin", "secret")
    trusting_others.ssl_cafile = ""
    with pytest.raises(LogUnavailable, match="certificate verify failed"):
        await connect(trusting_others, WallClock(), client_id="x", wait=2.0)


async def test_a_missing_right_names_the_topics(guest: KafkaLog) -> None:
    with pytest.raises(
        NotAuthorized, match=r"right Create is missing for .*hr\.dlq\.delivery.*hr\.requests"
    ):
        await declare(guest, Topics())
