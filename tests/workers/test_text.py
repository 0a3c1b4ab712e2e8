"""Streamed text equals the whole text, whatever the tokens were."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workers.text import TextStream

TEXTS = st.text(alphabet="abé世🙂 \n", max_size=30)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(a % (len(data) + 1) for a in at)})
    return [data[a:b] for a, b in pairwise(places)]


def run(tokens: list[bytes], stops: tuple[str, ...] = (), min_tokens: int = 0) -> list[str]:
    stream, pieces = TextStream(stops), []
    for k, token in enumerate(tokens):
        pieces.append(stream.push(token, search=k >= min_tokens))
        if stream.stop is not None:
            return pieces
    return [*pieces, stream.flush()]


@given(TEXTS, st.lists(st.integers(0, 200)))
def test_any_split_of_any_text_streams_to_the_same_text(text: str, at: list[int]) -> None:
    pieces = run(cut(text.encode(), at))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


@given(st.binary(max_size=20), st.lists(st.integers(0, 200)))
def test_invalid_bytes_stream_as_they_decode_at_once(data: bytes, at: list[int]) -> None:
    whole = data.decode("utf-8", "replace")
    streamed = "".join(run(cut(data, at)))
    assert whole.startswith(streamed)
    assert set(whole[len(streamed) :]) <= {
        "\ufffd"
    }  # an incomplete character at the end is dropped


@given(
    TEXTS,
    st.lists(st.integers(0, 200)),
    st.lists(st.text(alphabet="abé世", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_the_text_ends_before_the_first_stop_string(
    text: str, at: list[int], stops: list[str]
) -> None:
    found = [i for i in (text.find(stop) for stop in stops) if i >= 0]
    expected = text[: min(found)] if found else text
    # a split inside a stop may complete a later, shorter stop first: that one begins later
    streamed = "".join(run(cut(text.encode(), at), tuple(stops)))
    assert not any(stop in streamed for stop in stops)
    assert text.startswith(streamed)
    assert len(streamed) >= len(expected)
    if len(stops) == 1:
        assert streamed == expected


def test_text_is_held_back_only_while_it_may_become_a_stop_string() -> None:
    stream = TextStream(("STOP",))
    assert stream.push(b"go S") == "go "
    assert stream.push(b"T") == ""
    assert stream.push(b"A") == "STA"
    assert stream.push(b"STO") == ""
    assert stream.push(b"P and more") == ""
    assert stream.stop == "STOP"


def test_a_stop_string_inside_one_token_cuts_its_text() -> None:
    stream = TextStream(("!",))
    assert stream.push(b"well! no") == "well"
    assert stream.stop == "!"


def test_no_stop_string_begins_below_min_tokens() -> None:
    assert run([b"x", b"x", b"yx"], ("x",), min_tokens=2) == ["x", "x", "y"]
    assert run([b"a", b"b"], ("ab",), min_tokens=1) == ["a", "b", ""]


@given(
    TEXTS,
    st.lists(st.integers(0, 200)),
    st.text(alphabet="ab世", min_size=1, max_size=4),
    st.integers(0, 30),
)
def test_a_continuation_holds_back_what_the_first_attempt_held_back(
    text: str, at: list[int], stop: str, k: int
) -> None:
    tokens = cut(text.encode(), at)
    whole = run(tokens, (stop,))
    k = min(k, max(0, len(whole) - 1))
    again = TextStream((stop,))
    for token in tokens[:k]:
        again.push(token)
    if again.stop is None:
        rest = []
        for token in tokens[k:]:
            rest.append(again.push(token))
            if again.stop is not None:
                break
        else:
            rest.append(again.flush())
        assert "".join(whole[:k]) + "".join(rest) == "".join(whole)
