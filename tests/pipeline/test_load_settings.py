"""Flags over environment over file over defaults; an unknown name is an error that helps."""

from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from pipeline.check_settings import RULES, Rule
from pipeline.load_settings import SettingsError, load_settings, sections, variables
from pipeline.settings import Settings

DIGEST = "ab" * 32


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
    file = write(tmp_path, f'[keys]\n{DIGEST} = "tenant-a"\n')
    assert load_settings(environment={}, file=file).keys == {DIGEST: "tenant-a"}
    environment = {"HEADRACE_KEYS": f'{{"{DIGEST}": "tenant-b"}}'}
    assert load_settings(environment=environment, file=tmp_path / "no").keys == {DIGEST: "tenant-b"}


def test_a_value_of_the_wrong_type_is_named_as_the_environment_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^edge\.port \(HEADRACE_EDGE_PORT\) is 'many'"):
        load_settings(environment={"HEADRACE_EDGE_PORT": "many"}, file=tmp_path / "none.toml")


def every_number() -> list[tuple[str, str]]:
    """Each setting with a range, and a value just outside of it."""
    found = []
    for variable, (section, *key) in variables().items():
        kind = (
            msgspec.structs.fields(sections()[section]) if key else msgspec.structs.fields(Settings)
        )
        known = inspect.type_info({each.name: each.type for each in kind}[(key or [section])[0]])
        if isinstance(known, inspect.IntType | inspect.FloatType):
            assert known.ge is not None and known.le is not None, f"{variable} has no range"
            found += [(variable, str(known.ge - 1)), (variable, str(known.le + 1))]
    return found


@pytest.mark.parametrize(("variable", "value"), every_number())
def test_every_number_has_a_range_and_says_it(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(environment={variable: value}, file=tmp_path / "none.toml")
    words = str(raised.value)
    assert f"is '{value}'; it must be a" in words and "number from" in words
    assert variable in words or "HEADRACE_NULL_RATE" in words
    assert ".".join(variables()[variable]) in words


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("HEADRACE_EDGE_PORT", "70000", "edge.port (HEADRACE_EDGE_PORT) is '70000'; it must be a whole "),
        ("HEADRACE_RUNNER_RETRY_DELAY", "nan", "a number from 0 to"),
        ("HEADRACE_EDGE_PING", "inf", "a number from 0.01 to"),
        ("HEADRACE_WORKER_ENGINE", "tocrh", "one of torch, null"),
        ("HEADRACE_NULL_VARY", "yes", "worker.null_vary (HEADRACE_NULL_VARY) is 'yes'; it must be one of"),
        ("HEADRACE_UP_FSYNC", "maybe", "true or false"),
        ("HEADRACE_TOPICS_PREFIX", "a/b", "of the form"),
        ("HEADRACE_KEYS", '{"sk-secret": "acme"}', "SHA-256 of an API key, as 64 hexadecimal"),
        ("HEADRACE_KEYS", f'{{"{DIGEST}": ""}}', "1 to 128 characters"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_says_what_may(
    tmp_path: Path, variable: str, value: str, words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(environment={variable: value}, file=tmp_path / "none.toml")
    assert words in str(raised.value)
    assert "sk-secret" not in str(raised.value)  # a key is nothing for a log


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.names[0])
def test_settings_that_contradict_each_other_are_both_named(tmp_path: Path, rule: Rule) -> None:
    broken = {
        "topics.requests_retention_ms": "3600000",
        "topics.tokens_retention_ms": "3600000",
        "ingress.deadline": "90000",
        "ingress.deadline_bronze": "90000",
        "worker.heartbeat": "5",
        "worker.pause_after": "9",
    }[rule.names[0]]
    variable = "HEADRACE_" + rule.names[0].replace(".", "_").upper()
    with pytest.raises(SettingsError) as raised:
        load_settings(environment={variable: broken}, file=tmp_path / "none.toml")
    assert all(name in str(raised.value) for name in rule.names) and variable in str(raised.value)
