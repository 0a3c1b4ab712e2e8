"""The store in one process: as much of Redis as the edge asks for; it can be away."""

from redis.exceptions import ConnectionError as StoreAway


class Store:
    def __init__(self) -> None:
        self.away = False
        self._values: dict[str, bytes] = {}

    async def set(self, name: str, value: bytes, *, nx: bool = False, ex: int = 0) -> bool | None:
        self._check()
        if nx and name in self._values:
            return None
        self._values[name] = value
        return True

    async def get(self, name: str) -> bytes | None:
        self._check()
        return self._values.get(name)

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _check(self) -> None:
        if self.away:
            raise StoreAway("the store is away")
