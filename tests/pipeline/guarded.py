"""A cluster behind TLS that wants a name and a password, and does not let everybody do everything."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipeline import brokers

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


@contextmanager
def guarded_kafka(directory: Path) -> Iterator[brokers.ApacheKafka]:
    """`admin` (password `secret`) may do everything, `guest` (`guest`) nothing; `cert.pem` is in its
    directory."""
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
