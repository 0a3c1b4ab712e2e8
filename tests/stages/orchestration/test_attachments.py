"""Who reads which stream, and since when nobody does."""

from schemas.control import Attach, Detach
from stages.orchestration.attachments import KEEP, LIMIT, Attachments


def _attach(
    request_id: str = "r", stream: str = "a", edge: str = "e", grace: int = 15_000
) -> Attach:
    return Attach(request_id=request_id, stream=stream, edge=edge, epoch=f"{edge}-1", grace=grace)


def _detach(stream: str = "a", *, gone: bool = True) -> Detach:
    return Detach(request_id="r", stream=stream, edge="e", epoch="e-1", gone=gone)


def _due(attachments: Attachments, now: float) -> list[str]:
    return [attach.request_id for attach in attachments.due(now)]


def test_nobody_for_the_grace_is_due_and_named_once() -> None:
    each = Attachments()
    each.attach(_attach(), 0)
    assert not _due(each, 1000)
    each.detach(_detach(), 1000)
    assert not _due(each, 1014.9)
    assert _due(each, 1015) == ["r"]
    assert not _due(each, 1016)


def test_who_comes_back_on_another_edge_stops_the_count() -> None:
    each = Attachments()
    each.attach(_attach(), 0)
    each.detach(_detach(), 1)
    each.attach(_attach(stream="b", edge="other"), 15)
    assert not _due(each, 100)


def test_of_two_readers_one_may_leave() -> None:
    each = Attachments()
    each.attach(_attach(), 0)
    each.attach(_attach(stream="b"), 0)
    each.detach(_detach("b"), 1)
    assert not _due(each, 100)


def test_an_observer_cancels_nothing_and_holds_while_it_reads() -> None:
    each = Attachments()
    each.attach(_attach(grace=0), 0)
    each.detach(_detach(), 1)
    assert not _due(each, 100)
    each.attach(_attach(), 100)
    each.attach(_attach(stream="watch", grace=0), 100)
    each.detach(_detach(), 101)
    assert not _due(each, 200)
    each.detach(_detach("watch"), 200)
    assert not _due(each, 214)
    assert _due(each, 215) == ["r"]


def test_never_attached_is_never_due() -> None:
    each = Attachments()
    each.detach(_detach(), 0)
    assert not _due(each, 1000)


def test_an_edge_that_drains_starts_no_count_and_one_that_died_does() -> None:
    each = Attachments()
    each.attach(_attach(), 0)
    each.detach(_detach(gone=False), 1)
    assert not _due(each, 1000)
    each.attach(_attach(), 1000)
    each.gone(lambda edge, epoch: epoch == "e-1", 1010)
    assert not _due(each, 1024)
    assert _due(each, 1025) == ["r"]


def test_a_new_owner_counts_from_when_it_has_read_everything() -> None:
    each = Attachments()
    each.attach(_attach(), 0)
    each.detach(_detach(), 0)
    each.caught_up(50)
    assert not _due(each, 64)
    assert _due(each, 65) == ["r"]


def test_what_is_remembered_is_bounded_in_number_and_time() -> None:
    each = Attachments()
    for number in range(LIMIT + 10):
        each.attach(_attach(f"r{number}"), 0)
    assert len(each.requests) == LIMIT
    each.due(KEEP + 1)
    assert not each.requests
