"""What ingress changes in a text, and what it never touches."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.request import Message
from stages.ingress.normalise import normalise, normalise_messages
from tests.stages.ingress.stand import HELLO, ready


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("plain text, nothing to do", "plain text, nothing to do"),
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("no\u00a0break\u2003em", "no break em"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("ｆｕｌｌ ﬁ ①", "full fi 1"),
        ("e\u0301", "é"),
        ("line  \nnext\t\n", "line\nnext\n"),
        ("ends with a space ", "ends with a space "),
        ("  indented", "  indented"),
        ("👩\u200d👩\u200d👧", "👩\u200d👩\u200d👧"),
    ],
)
def test_characters_have_one_form(given: str, wanted: str) -> None:
    assert normalise(given) == wanted


@pytest.mark.parametrize(
    "code",
    [
        "```py\nx = 'ｆ'  \r\n```",
        "~~~\nｆ\r\n~~~",
        "`ﬁ\u00a0x`",
        "```\nnever closed ﬁ  \r\n",
    ],
)
def test_code_keeps_every_byte(code: str) -> None:
    assert normalise(f"ﬁ {code}") == f"fi {code}"


@given(st.text(max_size=200))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    if "`" not in once and "~~~" not in once:  # NFKC may make a code mark of a look-alike
        assert normalise(once) == once
        assert unicodedata.is_normalized("NFKC", once)


def test_normalize_false_leaves_the_text_alone() -> None:
    odd = {"messages": [{"role": "user", "content": "ﬁ\r\n"}]}
    assert ready(HELLO | odd).prompt_ids != ready(HELLO | odd | {"normalize": False}).prompt_ids
    message = Message(role="user", content="ﬁ", name="n")
    assert normalise_messages([message]) == [Message(role="user", content="fi", name="n")]
