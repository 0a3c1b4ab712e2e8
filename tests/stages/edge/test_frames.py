"""Frames are a function of the log alone: whoever joins at any place sees the same bytes."""

import random

from hypothesis import given
from hypothesis import strategies as st

from schemas.folds import SlotFold
from schemas.ids import mint
from schemas.ledger import Output, Said
from schemas.result import Result
from schemas.tokens import Admitted, Chunk, End, Event, Open
from stages.edge.frames import NATIVE, OPENAI, Frames

ID = mint(1_796_000_000_000, random.Random(0))


def history(chance: random.Random, kind: str) -> list[tuple[int, Event]]:
    """A slot as attempts, zombies, repeats and other requests leave it."""
    events: list[Event] = [
        Admitted(request_id=ID, model="m", lane="gold", prompt_tokens=1, created=0, kind=kind)
    ]
    attempt, said, finished = 1, 0, False
    events.append(Open(request_id=ID, attempt=1, worker="w", epoch="e"))
    for _ in range(chance.randint(0, 12)):
        what = chance.random()
        if what < 0.2:
            attempt += 1
            events.append(Open(request_id=ID, attempt=attempt, worker="w", epoch="e"))
        elif what < 0.3 and attempt > 1:
            events.append(Chunk(k=said, ids=[9], attempt=attempt - 1, pieces=["zombie"]))
        elif what < 0.4 and said:
            events.append(Chunk(k=said - 1, ids=[9], attempt=attempt, pieces=["repeat"]))
        elif not finished:
            count = chance.randint(0, 3)
            finished = count == 0 or chance.random() < 0.2
            pieces = [f"<{said + i}>" for i in range(count)]
            ids = [said + i for i in range(count)]
            finish = "stop" if finished else None
            events.append(Chunk(k=said, ids=ids, attempt=attempt, pieces=pieces, finish=finish))
            said += count
    total = said + (0 if finished else chance.randint(0, 2))
    events.append(End(request_id=ID, outcome="completed", tokens=total, output=7))
    events.append(End(request_id=ID, outcome="completed", tokens=total, output=7))
    offset, placed = chance.randint(0, 50), []
    for event in events:
        placed.append((offset, event))
        offset += chance.randint(1, 5)
    return placed


def ending(tokens: int, kind: str) -> tuple[Result, Output]:
    pieces = [f"<{i}>" for i in range(tokens)]
    said = Said(index=0, ids=list(range(tokens)), pieces=pieces, finish_reason="stop")
    output = Output(
        request_id=ID,
        attempt=1,
        outcome="completed",
        choices=[said],
        tenant="t",
        lane="gold",
        created=0,
        accepted=0,
        finished=0,
    )
    return Result(id=ID, outcome="completed", kind=kind), output


def render(frames: Frames, placed: list[tuple[int, Event]], kind: str) -> str:
    text = b""
    for offset, event in placed:
        if isinstance(event, End):
            result, output = ending(event.tokens, kind)
            rest = output if frames.lacks_rest(event) else None
            known = result if frames.needs_result(event) else None
            text += frames.close(offset, event, known, rest)
        else:
            text += frames.feed(offset, event)
    return text.decode()


def blocks(text: str) -> list[str]:
    return [block + "\n\n" for block in text.split("\n\n") if block]


@given(st.integers(0, 2**32), st.sampled_from(["chat", "text"]), st.sampled_from([OPENAI, NATIVE]))
def test_from_every_frame_on_the_rest_is_the_same(seed: int, kind: str, framing: str) -> None:
    placed = history(random.Random(seed), kind)
    whole = blocks(render(Frames(ID, "m", kind, framing), placed, kind))
    ids = [block.split("\n", 1)[0].removeprefix("id: ") for block in whole]
    assert len(set(ids)) == len(ids)
    for cut, name in enumerate(ids, 1):
        offset, _, rest = name.partition("-")
        seq, _, j = rest.partition(".")
        cursor = (int(offset), int(j or 0))
        folded = Frames(ID, "m", kind, framing, after=cursor, cursor_seq=int(seq))
        assert render(folded, placed, kind) == "".join(whole[cut:])
        record = dict(reversed(placed))[cursor[0]]
        if isinstance(record, Chunk):  # it alone says enough to go on from
            fold = SlotFold.resume(record.attempt, record.k)
            middle = Frames(ID, "m", kind, framing, fold=fold, after=cursor, cursor_seq=int(seq))
            assert render(middle, [p for p in placed if p[0] >= cursor[0]], kind) == "".join(
                whole[cut:]
            )
            assert middle.matched


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
def test_several_choices_are_shown_side_by_side(turns: list[tuple[int, int]]) -> None:
    said, chunks = [0, 0, 0], []
    for choice, count in [*turns, (0, -1), (1, -1), (2, -1)]:
        k = said[choice]
        ids = list(range(k, k + count)) if count > 0 else []
        pieces = [f"<{choice}.{i}>" for i in ids]
        if ids or count < 0:
            finish = "length" if count < 0 else None
            chunks.append(
                Chunk(k=k, ids=ids, attempt=1, choice=choice, pieces=pieces, finish=finish)
            )
        said[choice] += len(ids)
    opened = Open(request_id=ID, attempt=1, worker="w", epoch="e")
    end = End(request_id=ID, outcome="completed", tokens=sum(said), output=7)
    placed = list(enumerate([opened, *chunks, end], 10))
    text = render(Frames(ID, "m", "chat", usage=False), placed, "chat")
    for choice in range(3):
        shown = [part.partition(">")[0] for part in text.split(f"<{choice}.")[1:]]
        assert shown == [str(i) for i in range(said[choice])]
    assert text.count('"role":"assistant"') == 3
    assert text.count('"finish_reason":"length"') == 3
    whole = blocks(text)
    for cut, block in enumerate(whole, 1):
        offset, _, rest = block.split("\n", 1)[0].removeprefix("id: ").partition("-")
        seq, _, j = rest.partition(".")
        cursor = (int(offset), int(j or 0))
        joined = Frames(ID, "m", "chat", usage=False, after=cursor, cursor_seq=int(seq))
        assert render(joined, placed, "chat") == "".join(whole[cut:])
    for floor in range(sum(said) + 1):
        tail = render(Frames(ID, "m", "chat", usage=False, floor=floor), placed, "chat")
        for choice in range(3):
            first = tail.find(f"<{choice}.0>")
            role = tail.find(f'{{"index":{choice},"delta":{{"role"')
            assert first < 0 or 0 <= role < first


@given(st.integers(0, 2**32), st.sampled_from(["chat", "text"]))
def test_every_token_is_shown_once_in_order(seed: int, kind: str) -> None:
    placed = history(random.Random(seed), kind)
    end = placed[-1][1]
    assert isinstance(end, End)
    text = render(Frames(ID, "m", kind, usage=False), placed, kind)
    shown = [part.partition(">")[0] for part in text.split("<")[1:]]
    assert shown == [str(i) for i in range(end.tokens)]
    assert text.count('"finish_reason":"stop"') == 1
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"role":"assistant"') == (1 if kind == "chat" else 0)


@given(st.integers(0, 2**32), st.integers(0, 30))
def test_starting_after_shows_exactly_the_tokens_that_are_missing(seed: int, floor: int) -> None:
    placed = history(random.Random(seed), "chat")
    end = placed[-1][1]
    assert isinstance(end, End)
    floor = min(floor, end.tokens)
    text = render(Frames(ID, "m", "chat", floor=floor, usage=False), placed, "chat")
    shown = [part.partition(">")[0] for part in text.split("<")[1:]]
    assert shown == [str(i) for i in range(floor, end.tokens)]
