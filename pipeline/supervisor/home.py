"""HEADRACE_HOME: everything that is written, and who may write it."""

import fcntl
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

DATA_VERSION = 1
SOCKET_LIMIT = 100  # bytes; the kernel cuts a unix socket's path silently at 107


class HomeError(Exception):
    """The directory cannot be used; says why and what to do. Exit code 75."""


@dataclass(slots=True)
class Home:
    """One installation's directory."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    @property
    def store(self) -> Path:
        return self.path / "store"

    @property
    def state_file(self) -> Path:
        return self.run / "supervisor.json"

    def prepare(self) -> None:
        """Make the folders; refuse data of another version. Raises HomeError."""
        try:
            for folder in (self.logs, self.models, self.run, self.store):
                folder.mkdir(parents=True, exist_ok=True)
            version = self.path / "VERSION"
            if not version.exists():
                version.write_text(f"{DATA_VERSION}\n")
            found = version.read_text().strip()
        except OSError as error:
            raise HomeError(
                f"{self.path} cannot be written ({error.strerror}): "
                "free some space or name another folder with HEADRACE_HOME"
            ) from error
        if found != str(DATA_VERSION):
            raise HomeError(
                f"{self.path} holds data of version {found}, this program writes version "
                f"{DATA_VERSION}: use the matching release, or name another folder with HEADRACE_HOME"
            )

    def lock(self) -> TextIO:
        """Hold the folder for this process. Raises HomeError when another one does."""
        handle = (self.run / "supervisor.lock").open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.close()
            raise HomeError(
                f"{self.path} is in use by another `headrace up`: stop it with `headrace down`, "
                "or name another folder with HEADRACE_HOME"
            ) from error
        return handle

    def socket(self, name: str) -> Path:
        """A unix socket's path; a short one in the system's temporary folder where ours is too long."""
        path = (self.run / name).resolve()
        if len(os.fsencode(path)) <= SOCKET_LIMIT:
            return path
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}-{digest}-{name}"

    def write_state(self, state: dict[str, Any]) -> None:
        draft = self.state_file.with_suffix(".tmp")
        draft.write_text(json.dumps(state, indent=1))
        draft.replace(self.state_file)

    def read_state(self) -> dict[str, Any] | None:
        """What the running supervisor last wrote; None when none runs."""
        try:
            state: dict[str, Any] = json.loads(self.state_file.read_text())
        except (OSError, ValueError):
            return None
        return state if is_alive(int(state.get("pid", 0))) and self._held() else None

    def _held(self) -> bool:
        """Is the lock held? A pid alone may have been given to another process."""
        try:
            handle = (self.run / "supervisor.lock").open("r")
        except OSError:
            return False
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            return False


def is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
