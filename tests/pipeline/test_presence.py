"""Who is alive: silence counts only while we hear; neither our pause nor an outage kills anybody."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.log import Outgoing, TopicPartition
from pipeline.members import Hearing
from pipeline.presence import Members, Presence
from schemas.codec import encode
from schemas.status import Status, Wanted, WorkerFigures

from .stand import TOPICS, cluster, kill, member, virtual

STATUS = TopicPartition(TOPICS.status, 0)


async def present(on: Any, name: str, role: str = "worker", **figures: Any) -> tuple[Any, Any, Any]:
    """A member that beats: (member, presence, task)."""
    who = member(on, name)
    who.role = role
    presence = Presence(who, await who.log.writer("status"), lambda: figures)
    return who, presence, asyncio.create_task(presence.run())


def watching(on: Any, name: str = "watcher", **options: Any) -> tuple[Any, Members, Any]:
    log = on.connect(name)
    members = Members(log, TOPICS, **options)
    return log, members, asyncio.create_task(members.run())


async def put(on: Any, message: Status | Wanted | None, key: str) -> None:
    value = None if message is None else encode(message)
    writer = await on.connect("hand").writer()
    await writer.send(Outgoing(TOPICS.status, value, key=key.encode(), partition=0))


def status(name: str, epoch: str, counter: int, **more: Any) -> Status:
    return Status(member=name, role="worker", epoch=epoch, counter=counter, time=0, **more)


def test_members_that_beat_are_live_and_say_what_they_are() -> None:
    async def main() -> None:
        on = cluster()
        figures = WorkerFigures(
            model="m", revision="r", plan="exact", device_type="cpu", inbox=3, position=9
        )
        await present(on, "w1", worker=figures)
        await present(on, "e1", role="edge", slots=[1, 2])
        _, members, _ = watching(on)
        await asyncio.sleep(5)
        assert members.caught_up
        (worker,) = members.live("worker")
        (edge,) = members.live("edge")
        assert (worker.member, worker.state, worker.worker) == ("w1", "ready", figures)
        assert edge.slots == [1, 2]

    virtual(main)


def test_a_killed_member_is_dead_after_eight_seconds_of_silence_and_not_before() -> None:
    async def main() -> None:
        on = cluster()
        who, _, task = await present(on, "w1")
        await present(on, "w2")
        _, members, _ = watching(on)
        await asyncio.sleep(5)
        await kill(who, task)
        await asyncio.sleep(6.5)
        assert not members.dead("w1", who.epoch)
        await asyncio.sleep(4)
        assert members.dead("w1", who.epoch)
        assert [each.member for each in members.live("worker")] == ["w2"]

    virtual(main)


def test_our_own_pause_kills_nobody() -> None:
    async def main() -> None:
        on = cluster()
        who, _, _ = await present(on, "w1")
        log, members, _ = watching(on)
        await asyncio.sleep(5)
        log.pause()
        await asyncio.sleep(60)
        log.resume()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert not members.dead("w1", who.epoch)

    virtual(main)


def test_a_broker_that_is_away_kills_nobody() -> None:
    async def main() -> None:
        on = cluster()
        who, presence, _ = await present(on, "w1")
        _, members, _ = watching(on)
        await asyncio.sleep(5)
        on.set_available([STATUS], False)
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert not members.dead("w1", who.epoch)
        assert asyncio.get_running_loop().time() - presence.last_ack > 50  # it would pause itself
        on.set_available([STATUS], True)
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert not members.dead("w1", who.epoch)
        assert asyncio.get_running_loop().time() - presence.last_ack < 2

    virtual(main)


def test_statuses_do_not_pile_up_while_the_broker_is_away() -> None:
    async def main() -> int:
        on = cluster()
        _, presence, _ = await present(on, "w1")
        await asyncio.sleep(5)
        on.set_available([STATUS], False)
        for _ in range(100):
            presence.announce()
            await asyncio.sleep(1)
        assert presence.writer.pending == 1
        return int(presence.counter)

    assert virtual(main) < 10


def test_announcements_go_out_at_once_and_a_burst_shares_one_status() -> None:
    async def main() -> None:
        on = cluster()
        _, presence, _ = await present(on, "w1")
        await asyncio.sleep(1.5)
        before = presence.counter
        for _ in range(50):
            presence.announce()
            await asyncio.sleep(0.001)
        assert 1 <= presence.counter - before <= 5

    virtual(main)


def test_what_compaction_kept_of_the_dead_is_not_alive() -> None:
    async def main() -> None:
        on = cluster()
        await put(on, status("old", "e0", 7), "old")
        await present(on, "w1")
        _, members, _ = watching(on)
        await asyncio.sleep(3)
        assert [each.member for each in members.live("worker")] == ["w1"]
        assert not members.dead("old", "e0")  # silence is only beginning to count
        await asyncio.sleep(10)
        assert members.dead("old", "e0")

    virtual(main)


def test_a_late_status_of_the_same_life_is_ignored() -> None:
    async def main() -> None:
        on = cluster()
        _, members, _ = watching(on)
        await put(on, status("w", "e1", 5, slots=[5]), "w")
        await put(on, status("w", "e1", 4, slots=[4]), "w")
        await put(on, status("w", "e1", 5, slots=[6]), "w")
        await asyncio.sleep(2)
        assert members.members["w"].status.slots == [5]

    virtual(main)


def test_a_new_life_ends_the_old_one_at_once_and_the_old_ones_late_words_change_nothing() -> None:
    async def main() -> None:
        on = cluster()
        _, members, _ = watching(on)
        await put(on, status("w", "e1", 5), "w")
        await put(on, status("w", "e2", 1), "w")
        await put(on, status("w", "e1", 6), "w")
        await asyncio.sleep(2)
        assert members.dead("w", "e1")
        assert not members.dead("w", "e2")
        assert members.members["w"].status.epoch == "e2"

    virtual(main)


def test_a_late_word_of_an_earlier_life_cannot_hide_the_living_for_ever() -> None:
    async def main() -> None:
        on = cluster()
        who, _, _ = await present(on, "w")
        await asyncio.sleep(3)
        # whoever begins to read now meets the late word of another life first, then our beats
        await put(on, status("w", "earlier", 99), "w")
        _, members, _ = watching(on)
        await asyncio.sleep(20)
        assert members.members["w"].status.epoch == who.epoch
        assert not members.dead("w", who.epoch)

    virtual(main)


def test_leaving_is_told_at_once() -> None:
    async def main() -> None:
        on = cluster()
        who, presence, task = await present(on, "w1")
        _, members, _ = watching(on)
        await asyncio.sleep(5)
        await presence.leave()
        await asyncio.wait_for(task, 5)  # and nothing is written after it
        await asyncio.sleep(0.5)
        assert members.dead("w1", who.epoch)
        assert members.live("worker") == []

    virtual(main)


def test_what_a_member_should_be_is_a_state_that_outlives_everybody() -> None:
    async def main() -> None:
        on = cluster()
        await put(on, Wanted(member="w1", state="drain", why="asked"), "wanted/w1")
        _, members, _ = watching(on)
        heard: list[str] = []
        members.watch(lambda wanted: heard.append(wanted.state))
        await asyncio.sleep(2)
        assert members.wanted["w1"].state == "drain"
        await put(on, None, "wanted/w1")
        await asyncio.sleep(2)
        assert members.wanted == {}
        assert heard == ["drain", "run"]

    virtual(main)


def test_unreadable_statuses_are_counted_and_skipped() -> None:
    async def main() -> None:
        on = cluster()
        writer = await on.connect("hand").writer()
        for value in (b"\xff", b"{}", b'{"type": "status/9"}', b""):
            await writer.send(Outgoing(TOPICS.status, value, key=b"x", partition=0))
        await put(on, status("w", "e1", 1), "w")
        _, members, _ = watching(on)
        await asyncio.sleep(2)
        assert list(members.members) == ["w"]

    virtual(main)


def test_subscribers_hear_every_accepted_status() -> None:
    async def main() -> None:
        on = cluster()
        _, members, _ = watching(on)
        heard: list[int] = []
        members.subscribe(lambda seen: heard.append(seen.status.counter))
        for counter in (1, 3, 2, 4):
            await put(on, status("w", "e1", counter), "w")
        await asyncio.sleep(2)
        assert heard == [1, 3, 4]

    virtual(main)


@given(st.lists(st.tuples(st.floats(0.01, 30), st.booleans(), st.booleans()), max_size=50))
def test_silence_never_exceeds_the_time_in_which_we_could_hear(
    polls: list[tuple[float, bool, bool]],
) -> None:
    """Polls: (seconds since the last, something was heard, the reader is at the end)."""
    hearing = Hearing(4.0)
    now = could = 0.0  # could: seconds of prompt polls at the end, without a break
    hearing.begin(now)
    for gap, heard, at_end in polls:
        now += gap
        prompt = gap <= 3.0 and hearing.at_end
        hearing.poll_ended(now, heard, at_end)
        could = could + gap if prompt else 0.0
        assert hearing.silence(0.0) <= could + 1e-6
        assert hearing.silence(now) == 0.0


def test_deaf_for_half_the_limit_starts_all_counts_again() -> None:
    hearing = Hearing(4.0)
    hearing.begin(0.0)
    for second in range(1, 10):
        hearing.poll_ended(float(second), heard=second < 3, at_end=True)
        assert hearing.silence(0.0) <= 5.0
    assert hearing.silence(0.0) == pytest.approx(0.0)
