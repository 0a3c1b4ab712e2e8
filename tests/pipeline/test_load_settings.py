"""Flags over environment over file over defaults; an unknown name is an error that helps."""

from pathlib import Path

import pytest

from pipeline.load_settings import SettingsError, load_settings


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(text)
    return path


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[edge]\nport = 1\nhost = "file"\n[runner]\ntries = 5\n')
    environment = {"HEADRACE_EDGE_PORT": "2", "HEADRACE_HOME": "there", "UNRELATED": "x"}
    loaded = load_settings({"edge.port": 3}, environment=environment, file=file)
    assert (loaded.edge.port, loaded.edge.host, loaded.home, loaded.runner.tries) == (
        3,
        "file",
        "there",
        5,
    )
    assert load_settings(environment=environment, file=file).edge.port == 2


def test_nothing_configured_gives_the_defaults(tmp_path: Path) -> None:
    loaded = load_settings(environment={}, file=tmp_path / "none.toml")
    assert loaded.edge.port == 8080 and loaded.kafka.bootstrap == "127.0.0.1:19092"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[edge]\nprot = 1", "'prot'; did you mean port"),
        ("[egde]\nport = 1", "'egde'"),
        ("edge = 1", "is a section"),
        ("[edge]\nport = 'x'", "edge.port"),
        ("[edge", "headrace.toml"),
    ],
)
def test_a_wrong_file_names_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(environment={}, file=write(tmp_path, text))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("HEADRACE_EDGE_PROT", "1", "did you mean HEADRACE_EDGE_PORT"),
        ("HEADRACE_EDGE_PORT", "many", "edge.port"),
        ("HEADRACE_KEYS", "{", "HEADRACE_KEYS"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(environment={variable: value}, file=tmp_path / "none.toml")
    assert words in str(raised.value)


def test_keys_come_as_a_table(tmp_path: Path) -> None:
    file = write(tmp_path, '[keys]\nabc = "tenant-a"\n')
    assert load_settings(environment={}, file=file).keys == {"abc": "tenant-a"}
    environment = {"HEADRACE_KEYS": '{"def": "tenant-b"}'}
    assert load_settings(environment=environment, file=tmp_path / "no").keys == {"def": "tenant-b"}


def test_a_value_of_the_wrong_type_is_named_as_the_environment_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^edge\.port \(HEADRACE_EDGE_PORT\): Expected `int`"):
        load_settings(environment={"HEADRACE_EDGE_PORT": "many"}, file=tmp_path / "none.toml")
