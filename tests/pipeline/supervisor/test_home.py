"""One folder, one installation; what cannot be used is named."""

from pathlib import Path

import pytest

from pipeline.supervisor.home import SOCKET_LIMIT, Home, HomeError


def test_a_second_up_in_one_folder_is_told_who_holds_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    with home.lock(), pytest.raises(HomeError, match="headrace down"):
        home.lock()


def test_data_of_another_version_is_refused(tmp_path: Path) -> None:
    Home(tmp_path).prepare()
    (tmp_path / "VERSION").write_text("99\n")
    with pytest.raises(HomeError, match="version 99"):
        Home(tmp_path).prepare()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="HEADRACE_HOME"):
        Home(tmp_path / "file" / "below").prepare()


def test_a_state_without_its_supervisor_is_stale(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    home.write_state({"pid": 1, "roles": []})  # pid 1 lives, but does not hold the lock
    assert home.read_state() is None
    with home.lock():
        assert home.read_state() is not None


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    short, long = Home(tmp_path), Home(tmp_path / ("x" * 120))
    assert short.socket("s").parent == (tmp_path / "run").resolve()
    assert len(str(long.socket("s"))) <= SOCKET_LIMIT
    assert long.socket("s") == long.socket("s") != Home(tmp_path / ("y" * 120)).socket("s")
