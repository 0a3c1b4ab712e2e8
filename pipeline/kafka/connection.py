"""One broker's answers to one request at a time, with no task, timer or stream in between.

aiokafka opens the connection: TLS, SASL and the versions that a broker speaks are its job. Then the
transport is ours: what it costs to carry a request through a stream was a third of a poll.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

from aiokafka import errors as kafka
from aiokafka.conn import AIOKafkaConnection, create_conn

_HEAD = struct.Struct(">ihhih")  # length, key, version, number, length of the client's name
_FRAME = struct.Struct(">ii")  # length of what follows, number
_MOST = 1 << 30  # bytes of an answer that is believed

Answered = Callable[[memoryview | None], None]  # None: the connection ended before


class Connection(asyncio.Protocol):
    def __init__(self, opened: AIOKafkaConnection, client_id: str) -> None:
        self._opened = opened  # ends the transport when it is dropped, so it is kept
        self._name = client_id.encode()
        self._number = 0
        self._answered: Answered | None = None
        self._received = bytearray()
        self.ended = False
        self._transport = cast(asyncio.Transport, opened._writer.transport)
        opened._read_task.cancel()
        self._transport.set_protocol(self)

    @classmethod
    async def open(cls, host: str, port: int, options: dict[str, Any]) -> "Connection":
        """Raises KafkaError, OSError and TimeoutError as aiokafka does."""
        opened = await create_conn(host, port, **options)
        return cls(opened, options["client_id"])

    def require(self, what: tuple[int, int]) -> None:
        """Raises IncompatibleBrokerVersion if the broker does not know this request in its version."""
        key, version = what
        lowest, highest = self._opened._versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            raise kafka.IncompatibleBrokerVersion(
                f"version {version} of request {key} is needed, the broker speaks {lowest}–{highest}:"
                " Kafka 2.4 or later is needed"
            )

    def request(self, what: tuple[int, int], body: bytes, answered: Answered) -> None:
        """Send it, of this number and version; `answered` is called once, with what follows the
        answer's head."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        self._answered = answered
        name = self._name
        length = _HEAD.size - 4 + len(name) + len(body)
        head = _HEAD.pack(length, *what, self._number, len(name))
        self._transport.write(b"".join((head, name, body)))

    def close(self) -> None:
        """The answer that is awaited is not called any more."""
        self._answered = None
        self._opened.close()

    def data_received(self, data: bytes) -> None:
        received: bytes | bytearray = data
        if self._received:
            self._received += data
            received = self._received
        if len(received) < _FRAME.size:
            whole = False
        else:
            length, number = _FRAME.unpack_from(received)
            if number != self._number or self._answered is None or not 4 <= length <= _MOST:
                self._transport.abort()  # it is out of step: begin anew
                return
            whole = len(received) >= 4 + length
        if not whole:
            if received is data:
                self._received += data
            return
        self._received = bytearray()
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(memoryview(received)[_FRAME.size : 4 + length])

    def connection_lost(self, exc: Exception | None) -> None:
        answered, self._answered = self._answered, None
        self.ended = True
        self._opened.close()
        if answered is not None:
            answered(None)
