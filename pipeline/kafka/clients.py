"""The two clients behind the admin, started at the first question, and how a question is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient

from ..log import LogError, NotAuthorized, UnknownTopic
from .errors import translate
from .stopping import stop

T = TypeVar("T")
LIMIT = 10.0  # s for one question, tries included
PAUSE = 0.1  # s between tries
FINAL = (NotAuthorized, UnknownTopic)  # answers, not failures


class Clients:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._admin: AIOKafkaAdminClient | None = None
        self._asker: AIOKafkaConsumer | None = None  # never assigned, so it never fetches
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        if self._admin is not None:
            await stop(self._admin.close(), "client")
        if self._asker is not None:
            await stop(self._asker.stop(), "consumer")

    async def ask(self, what: str, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer. Raises LogUnavailable after LIMIT."""
        error: Exception | None = None
        try:
            async with asyncio.timeout(LIMIT):
                while True:
                    try:
                        return await question()
                    except (kafka.KafkaError, OSError) as failed:
                        error = failed
                        told = translate(failed, what)
                        if isinstance(told, FINAL) or type(told) is LogError:
                            raise told from failed
                        if isinstance(failed, kafka.UnknownMemberIdError):
                            raise told from failed  # the group has members
                    await asyncio.sleep(PAUSE)
        except TimeoutError as late:
            raise translate(late, f"{what}, {LIMIT} s, last {error!r}") from error

    async def admin(self) -> AIOKafkaAdminClient:
        async with self._starting:
            if self._admin is None:
                client = AIOKafkaAdminClient(**self._options)
                try:
                    await client.start()
                except BaseException:
                    await stop(client.close(), "client")
                    raise
                self._admin = client
            return self._admin

    async def asker(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._asker is None:
                consumer = AIOKafkaConsumer(**self._options, enable_auto_commit=False)
                try:
                    await consumer.start()
                except BaseException:
                    await stop(consumer.stop(), "consumer")
                    raise
                await asyncio.sleep(0)  # its tasks must have begun before they can be stopped
                self._asker = consumer
            return self._asker
