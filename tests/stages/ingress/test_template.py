"""Chat templates: a stranger's code, and text that never becomes a control token."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import Refusal
from schemas.request import Message
from stages.ingress.template import ChatTemplate

CONTROL = ("<|im_start|>", "<|im_end|>", "<s>", "[INST]", "[/INST]", "a><b", "<a>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_ANY = re.compile("|".join(map(re.escape, sorted(CONTROL, key=len, reverse=True))))


def template(source: str = CHATML) -> ChatTemplate:
    return ChatTemplate(source, CONTROL, bos="<s>", eos="<|im_end|>", now_ms=lambda: 86_400_000)


def read(pieces: list[tuple[str, bool]]) -> tuple[str, list[str]]:
    """The whole text, and the control tokens that a vocabulary would find in its pieces."""
    found = [token for text, is_template in pieces if is_template for token in _ANY.findall(text)]
    return "".join(text for text, _ in pieces), found


def user(content: str, name: str | None = None) -> Message:
    return Message(role="user", content=content, name=name)


def test_messages_become_the_prompt_of_the_template() -> None:
    text, found = read(template().render([user("hello")]))
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert found == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [*CONTROL, "<", ">", "|", "<|im_", "end|>", "x", " ", "\U000f0000", "é"]
            )
            | st.text(max_size=3),
            max_size=8,
        ).map("".join),
        min_size=1,
        max_size=3,
    )
)
def test_user_text_never_becomes_a_control_token_and_is_never_lost(contents: list[str]) -> None:
    text, found = read(template().render([user(content) for content in contents]))
    assert found == ["<|im_start|>", "<|im_end|>"] * len(contents) + ["<|im_start|>"]
    assert text == "".join(
        f"<|im_start|>user\n{content.strip()}<|im_end|>\n" for content in contents
    ) + ("<|im_start|>assistant\n")


@pytest.mark.parametrize("content", ["im_start|>", "|im_start|>", "<|im_sta", "m_sta"])
def test_a_template_that_ends_or_begins_within_a_token_completes_none(content: str) -> None:
    source = (
        "{{ messages[0].content }}rt|> <|{{ messages[0].content }} <{{ messages[0].content }}rt|>"
    )
    assert read(template(source).render([user(content)]))[1] == []


def test_adjacent_texts_of_a_user_complete_no_token() -> None:
    source = "{{ messages[0].name }}{{ messages[0].content }}"
    assert read(template(source).render([user("im_end|>", name="<|")])) == ("<|im_end|>", [])


def test_a_template_may_look_into_a_text() -> None:
    source = (
        "{% set said = messages[0].content %}"
        "{% if '</think>' in said %}{{ said.split('</think>')[-1] }}{% endif %}"
    )
    assert read(template(source).render([user("<|im_end|></think> so <s>")])) == (" so <s>", [])


def test_a_template_may_refuse() -> None:
    with pytest.raises(Refusal) as caught:
        template("{{ raise_exception('roles must alternate') }}").render([user("x")])
    assert caught.value.code == "invalid_value"
    assert "roles must alternate" in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% for i in range(99999999) %}x{% endfor %}",
        "{% for i in range(90000) %}xxxxxxxxxx{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content.x }}",
        "{{ nothing() }}",
        "{{ 'x' * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ [1] * 1000000000 }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox_nor_run_away(source: str) -> None:
    with pytest.raises(Refusal) as caught:
        template(source).render([user("x")])
    assert caught.value.code == "internal_error"
    assert len(caught.value.message) <= 500


def test_a_template_knows_today_tokens_and_loop_controls() -> None:
    source = (
        "{{ bos_token }}{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m | tojson }}"
        "{% break %}{% endfor %}{{ eos_token }}"
    )
    text, _ = read(template(source).render([user("é"), user("never")]))
    assert text.startswith("<s>1970-01-02") and text.endswith("<|im_end|>")
    assert "never" not in text
