"""What dies is started again; what is told to stop is given its time."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from pipeline.supervisor.child import Child
from pipeline.supervisor.log_file import LogFile


def child_of(tmp_path: Path, code: str, lines: "asyncio.Queue[str]") -> Child:
    log = LogFile(tmp_path / "child.log")
    return Child("role", "role-1", [sys.executable, "-c", code], log, on_line=lines.put_nowait)


@pytest.fixture
def lines() -> "asyncio.Queue[str]":
    return asyncio.Queue()


async def next_line(lines: "asyncio.Queue[str]") -> str:
    return await asyncio.wait_for(lines.get(), 30)


WAITS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


async def test_a_killed_child_is_started_again_at_once(
    tmp_path: Path, lines: "asyncio.Queue[str]"
) -> None:
    child = child_of(tmp_path, WAITS, lines)
    keeping = asyncio.create_task(child.keep())
    first = int(await next_line(lines))
    os.kill(first, signal.SIGKILL)
    second = int(await next_line(lines))
    assert second != first and child.restarts == 1
    await child.stop(10)
    await asyncio.wait_for(keeping, 10)
    assert child.state == "stopped"


async def test_a_child_that_ignores_sigterm_is_killed_at_the_limit(
    tmp_path: Path, lines: "asyncio.Queue[str]"
) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + WAITS
    child = child_of(tmp_path, code, lines)
    keeping = asyncio.create_task(child.keep())
    await next_line(lines)
    await child.stop(0.2)
    await asyncio.wait_for(keeping, 10)
    assert child.process is not None and child.process.returncode == -signal.SIGKILL


async def test_a_taken_port_is_not_tried_for_ever(
    tmp_path: Path, lines: "asyncio.Queue[str]"
) -> None:
    child = child_of(
        tmp_path, "import sys; print('port taken', file=sys.stderr); sys.exit(75)", lines
    )
    await asyncio.wait_for(child.keep(), 30)
    assert child.state == "failed" and child.last_lines == ["port taken"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux only")
async def test_the_supervisors_own_death_takes_its_children_along(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from pipeline.supervisor.child import Child
from pipeline.supervisor.log_file import LogFile
child = Child("r", "r-1", [sys.executable, "-c", {WAITS!r}], LogFile(Path({str(tmp_path)!r}) / "l"),
              on_line=lambda line: print(line, flush=True))
asyncio.run(child.keep())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert parent.stdout is not None
    orphan = int(await asyncio.wait_for(parent.stdout.readline(), 30))
    ended = asyncio.Event()
    handle = os.pidfd_open(orphan)  # readable when the process ends
    asyncio.get_running_loop().add_reader(handle, ended.set)
    parent.kill()
    await parent.wait()
    await asyncio.wait_for(ended.wait(), 30)
    asyncio.get_running_loop().remove_reader(handle)
    os.close(handle)


def test_a_log_never_grows_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.supervisor.log_file.LIMIT", 100)
    log = LogFile(tmp_path / "x.log")
    for number in range(100):
        log.write(f"line {number:03}\n".encode())
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["x.log", "x.log.1", "x.log.2", "x.log.3"]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    assert (tmp_path / "x.log").read_text().endswith("line 099\n")
