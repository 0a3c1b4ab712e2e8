"""Unknown is not none: `new` is only said where it is certain."""

import random

from pipeline import history
from pipeline.history import SKEW, History, reach
from pipeline.log import Record, TopicPartition
from schemas.ids import mint
from tests.pipeline.stand import IN, cluster, virtual, write


def _ids(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [mint(1_000, chance) for _ in range(count)]


def _record(timestamp: int) -> Record:
    return Record(IN, 0, 0, timestamp, None, None, ())


def test_before_anything_is_known_everything_is_doubtful() -> None:
    assert History().doubtful(_ids(1)[0], 10**15)


def test_what_was_accepted_after_the_first_record_is_known() -> None:
    known = History()
    known.begin(_record(1_000))
    assert known.doubtful("req_x", 1_000 + SKEW - 1)
    assert not known.doubtful("req_x", 1_000 + SKEW)


def test_no_id_that_ended_is_ever_called_new_and_hardly_any_new_one_ended() -> None:
    known = History()
    known.floor = 0
    ended = _ids(40_000)
    for request_id in ended:
        known.add(request_id, 1)
    assert all(known.doubtful(request_id, 1) for request_id in ended)
    assert sum(known.doubtful(request_id, 1) for request_id in _ids(20_000, 1)) < 20


def test_an_id_that_is_none_of_ours_is_remembered_too() -> None:
    known = History()
    known.floor = 0
    known.add("nonsense", 1)
    assert known.doubtful("nonsense", 1)
    assert not known.doubtful("other nonsense", 1)


def test_what_is_forgotten_is_doubtful_again() -> None:
    limit = history.FILTERS * history.HOLDS
    known = History()
    known.floor = 0
    for number in range(history.FILTERS + 1):  # a filter at a time, as if it were full
        known.add(f"req_{number:012x}", 1_000 + number)
        known._filters[-1].count = history.HOLDS
    assert limit > 0
    assert known.floor == 1_000 + SKEW
    assert known.doubtful("req_new", 1_000 + SKEW - 1)


def test_reading_further_back_makes_certain() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"{}", b"{}", b"{}")
        at, log, known = TopicPartition(IN, 0), on.connect("me"), History()
        since = on.clock.ms() - 60_000
        await reach(log, at, known, before=2, since_ms=since)
        assert known.floor == since
        assert not known.doubtful("req_x", since)
        assert known.doubtful("req_x", since - 1)

    virtual(main)
