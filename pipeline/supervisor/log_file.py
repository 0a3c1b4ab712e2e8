"""A log file that never grows without bound."""

from pathlib import Path

LIMIT = 16 << 20  # bytes a file
KEPT = 3  # older files beside it


class LogFile:
    """Appends bytes; at the limit `name.log` becomes `name.log.1`, and so on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        if self._size + len(data) > LIMIT:
            self._rotate()
        try:
            self._file.write(data)
        except OSError:  # a full disk must not take the process along that is being logged
            return
        self._size += len(data)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = (
                self._path.with_name(f"{self._path.name}.{number - 1}")
                if number > 1
                else self._path
            )
            if newer.exists():
                newer.replace(older)
        self._file = self._path.open("ab", buffering=0)
        self._size = 0

    def close(self) -> None:
        self._file.close()
