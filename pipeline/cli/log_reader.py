"""`headrace logs`: what the processes wrote, one file a member."""

import time
from pathlib import Path

from .options import settings
from .say import error

TAIL = 200  # lines shown before following
LOOK_EVERY = 0.2  # s between looks at growing files


def show(role: str | None, *, follow: bool) -> int:
    folder = Path(settings().home) / "logs"
    files = sorted(folder.glob("*.log"))
    if role is not None:
        files = [f for f in files if f.stem == role or f.stem.rpartition("-")[0] == role]
    if not files:
        return error(f"no log of {role or 'anything'} in {folder}")
    positions: dict[Path, int] = {}
    for file in files:
        data = file.read_bytes()
        positions[file] = len(data)
        for line in data.decode(errors="replace").splitlines()[-TAIL:]:
            print(f"{file.stem}: {line}")
    try:
        while follow:
            time.sleep(LOOK_EVERY)
            for file in files:
                _print_new(file, positions)
    except KeyboardInterrupt:
        pass
    return 0


def _print_new(file: Path, positions: dict[Path, int]) -> None:
    size = file.stat().st_size
    if size < positions[file]:  # it was rotated
        positions[file] = 0
    if size == positions[file]:
        return
    with file.open("rb") as handle:
        handle.seek(positions[file])
        data = handle.read()
    positions[file] += len(data)
    for line in data.decode(errors="replace").splitlines():
        print(f"{file.stem}: {line}", flush=True)
