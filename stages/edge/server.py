"""Listening: uvicorn's protocol on a socket of our own, so that draining is ours to decide."""

import asyncio
import contextlib
from email.utils import formatdate

from uvicorn.config import Config
from uvicorn.server import ServerState

from pipeline.settings import EdgeSettings

from .app import App
from .protocol import KEEP_ALIVE, EdgeProtocol

BACKLOG = 2048


class Server:
    def __init__(self, app: App, settings: EdgeSettings) -> None:
        self.settings = settings
        self.state = ServerState()
        self.config = Config(
            app,
            http=EdgeProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=int(KEEP_ALIVE),
        )
        self.config.load()
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        """The port. Raises OSError when it is taken."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: EdgeProtocol(self.config, self.state, self.settings),
            self.settings.host,
            self.settings.port,
            backlog=BACKLOG,
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stamp(self, now: float) -> None:
        """The `Date` of answers from now on; `now`: seconds since the epoch."""
        self.state.default_headers[:] = [(b"date", formatdate(now, usegmt=True).encode())]

    def refuse_new(self) -> None:
        """No further connections; idle ones close, busy ones after their answer."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()

    @property
    def busy(self) -> int:
        """Requests that are being answered."""
        return len(self.state.tasks)

    async def idle(self, timeout: float) -> bool:
        """Wait until every answer is finished; False at the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.state.tasks:
                    await asyncio.wait(self.state.tasks)
        return not self.state.tasks

    async def close(self) -> None:
        """What is still open is cut."""
        for connection in list(self.state.connections):
            connection.transport.abort()
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
