"""A record is done when its outputs are acked; bad ones never stop good ones; nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec import Struct

from pipeline.log import LogUnavailable, NotAuthorized, Outgoing, Placed, Record, TopicPartition
from pipeline.runner import Runner
from pipeline.stage import Context, DeadLetter, Emit, Hold, Retry
from schemas.codec import decode

from .stand import GROUP, IN, OUT, cluster, committed, kill, member, read, values, virtual, write

AT = TopicPartition(IN, 0)


class Word(Struct, frozen=True):
    text: str


async def shout(record: Record, context: Context) -> AsyncIterator[Emit]:
    assert record.value is not None
    yield Outgoing(OUT, record.value.upper(), partition=record.partition)


def runner(on: Any, stage: Any = shout, **options: Any) -> Runner:
    return Runner(on, stage, topics=[IN], group=GROUP, **options)


async def until(condition: Any, limit: float = 600.0) -> None:
    async with asyncio.timeout(limit):
        while not await condition():  # noqa: ASYNC110 - virtual time: no clock is spent
            await asyncio.sleep(0.1)


async def settle(seconds: float = 5.0) -> None:
    await asyncio.sleep(seconds)


async def drained(who: Any, task: "asyncio.Task[None]") -> None:
    who.draining.set()
    await asyncio.wait_for(task, 60)


def test_each_record_goes_through_the_stage_once_and_is_committed() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, *(b"w%d" % number for number in range(100)))
        who = member(on)
        task = asyncio.create_task(runner(who).run())
        await settle()
        await drained(who, task)
        assert sorted(await values(on, OUT)) == sorted(b"W%d" % number for number in range(100))
        assert await committed(on) == 100

    virtual(main)


def test_a_record_is_not_committed_before_its_outputs_are_acked() -> None:
    async def main() -> None:
        on = cluster()
        on.set_available([TopicPartition(OUT, 0)], False)
        await write(on, b"a")
        who = member(on)
        task = asyncio.create_task(runner(who).run())
        await settle(30)
        assert await committed(on) == 0
        on.set_available([TopicPartition(OUT, 0)], True)
        await settle(30)
        assert await committed(on) == 1
        await drained(who, task)

    virtual(main)


def test_a_slow_record_holds_the_commit_and_nobody_else() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"slow", *(b"quick%d" % number for number in range(50)))
        gate = asyncio.Event()

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            if record.value == b"slow":
                await gate.wait()
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage).run())
        await settle()
        assert len(await values(on, OUT)) == 50
        assert await committed(on) == 0
        gate.set()
        await settle()
        assert await committed(on) == 51
        await drained(who, task)

    virtual(main)


def test_what_was_done_behind_a_slow_record_is_not_done_again_after_a_kill() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"slow", *(b"quick%d" % number for number in range(20)))
        never = asyncio.Event()
        calls: list[bytes | None] = []

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            calls.append(record.value)
            if record.value == b"slow" and len(calls) < 22:
                await never.wait()
            yield Outgoing(OUT, record.value, partition=0)

        first = member(on)
        task = asyncio.create_task(runner(first, stage).run())
        await settle()
        await kill(first, task)
        second = member(on, "two")
        task = asyncio.create_task(runner(second, stage).run())
        await settle(60)
        await drained(second, task)
        assert calls.count(b"slow") == 2
        assert len(calls) == 22
        assert await committed(on) == 21

    virtual(main)


def test_so_many_at_once_and_no_more() -> None:
    async def main() -> int:
        on = cluster(3)
        for partition in range(3):
            await write(on, *[b"x"] * 40, partition=partition)
        running = most = 0

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage, concurrency=8).run())
        await settle(30)
        await drained(who, task)
        assert len(await values(on, OUT)) == 120
        return most

    assert virtual(main) == 8


def test_observe_sees_every_record_in_order_before_any_is_worked_on() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, *(b"%d" % number for number in range(30)))
        seen: list[int] = []

        def observe(record: Record, raw: Record) -> int:
            seen.append(raw.offset)
            return len(seen)

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            await asyncio.sleep(context.chance.random())
            assert context.seen == record.offset + 1
            yield Outgoing(OUT, b"ok", partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage, observe=observe).run())
        await settle(10)
        await drained(who, task)
        assert seen == list(range(30))
        assert len(await values(on, OUT)) == 30

    virtual(main)


def test_unreadable_records_are_dead_letters_byte_for_byte_and_end_their_request() -> None:
    async def main() -> None:
        on = cluster()
        log = on.connect("odd")
        writer = await log.writer()
        odd = Outgoing(
            IN, b"\xff\x00garbage", key=None, headers=(("a", b"1"), ("a", b"\xfe"), ("b", b""))
        )
        await writer.send(odd)
        await writer.send(Outgoing(IN, None, key=b"k"))
        await writer.send(Outgoing(IN, b'{"text": "good"}'))

        async def stage(word: Word, context: Context) -> AsyncIterator[Emit]:
            yield Outgoing(OUT, word.text.encode(), partition=0)

        def on_dead(record: Record, why: DeadLetter) -> Sequence[Outgoing]:
            return [Outgoing(OUT, f"ended {record.offset} {why.reason}".encode(), partition=0)]

        who = member(on)
        task = asyncio.create_task(runner(who, stage, kind=Word, on_dead=on_dead).run())
        await settle()
        await drained(who, task)
        assert sorted(await values(on, OUT)) == [
            b"ended 0 unreadable",
            b"ended 1 unreadable",
            b"good",
        ]
        letters = {
            dict(each.headers)["__dlq.errors.offset"]: each
            for each in await read(on, "hr.dlq.test")
        }
        first, second = letters[b"0"], letters[b"1"]
        assert (first.key, first.value) == (None, b"\xff\x00garbage")
        assert first.headers[:3] == odd.headers
        named = dict(first.headers[3:])
        assert named["__dlq.errors.topic"] == b"in"
        assert named["__dlq.errors.group"] == b"g"
        assert named["__dlq.errors.delivery.count"] == b"1"
        assert (second.key, second.value) == (b"k", None)
        assert await committed(on) == 3

    virtual(main)


def test_a_record_that_must_wait_is_tried_three_times_and_delays_nobody() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"never", b"later", b"now")
        times: dict[bytes, list[float]] = {}

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            assert record.value is not None
            times.setdefault(record.value, []).append(asyncio.get_running_loop().time())
            if record.value == b"never" or (record.value == b"later" and context.tries < 3):
                yield Retry("not_yet")
            else:
                yield Outgoing(OUT, record.value, partition=0)

        who = member(on, retry_delay=10.0)
        task = asyncio.create_task(runner(who, stage).run())
        await settle(60)
        await drained(who, task)
        assert await values(on, OUT) == [b"now", b"later"]
        (letter,) = await read(on, "hr.dlq.test")
        named = dict(letter.headers)
        assert (letter.value, named["__dlq.errors.delivery.count"]) == (b"never", b"3")
        assert named["__dlq.errors.message"].startswith(b"not_yet")
        first, second, third = times[b"never"]
        assert (second - first, third - second) == pytest.approx((10, 10), abs=0.1)
        assert await committed(on) == 3

    virtual(main)


def test_a_stage_that_raises_costs_its_record_only() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"bad", b"good")

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            if record.value == b"bad":
                raise ZeroDivisionError("of the stage")
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage).run())
        await settle(20)
        await drained(who, task)
        assert await values(on, OUT) == [b"good"]
        (letter,) = await read(on, "hr.dlq.test")
        assert dict(letter.headers)["__dlq.errors.exception.class"] == b"builtins.ZeroDivisionError"

    virtual(main)


def test_a_log_that_is_away_counts_against_no_record() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            if asyncio.get_running_loop().time() < 60:
                raise LogUnavailable("a look-up of the stage found no broker")
            yield Outgoing(OUT, b"%d" % context.tries, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage).run())
        await settle(90)
        await drained(who, task)
        assert await values(on, OUT) == [b"1"]
        assert await read(on, "hr.dlq.test") == []

    virtual(main)


def test_an_output_too_large_is_a_dead_letter() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a", b"b")

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            size = 2 << 20 if record.value == b"a" else 1
            yield Outgoing(OUT, b"x" * size, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage).run())
        await settle()
        await drained(who, task)
        assert await values(on, OUT) == [b"x"]
        (letter,) = await read(on, "hr.dlq.test")
        assert dict(letter.headers)["__dlq.errors.message"].startswith(b"record_too_large")

    virtual(main)


def test_no_right_to_write_ends_the_process_instead_of_every_record() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            raise NotAuthorized("out: Write")
            yield  # it is a generator

        who = member(on)
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(runner(who, stage).run(), 60)
        assert caught.group_contains(NotAuthorized)
        assert await read(on, "hr.dlq.test") == []

    virtual(main)


def test_a_held_record_is_complete_only_when_it_is_released() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"hold", b"end")
        held: list[Runner] = []

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            if record.value == b"hold":
                yield Hold()
            else:
                yield Outgoing(OUT, b"end", partition=0)

        who = member(on)
        held.append(runner(who, stage, span=None))
        task = asyncio.create_task(held[0].run())
        await settle()
        assert await committed(on) == 0
        held[0].release(AT, 0)
        await settle()
        assert await committed(on) == 2
        await drained(who, task)

    virtual(main)


def test_a_release_before_the_stage_says_hold_is_not_lost() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        gate = asyncio.Event()

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            await gate.wait()
            yield Hold()

        who = member(on)
        run = runner(who, stage)
        task = asyncio.create_task(run.run())
        await settle()
        run.release(AT, 0)
        gate.set()
        await settle()
        assert await committed(on) == 1
        await drained(who, task)

    virtual(main)


def test_flush_tells_a_stage_where_its_records_lie() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        placed: list[Placed] = []

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            yield Outgoing(OUT, b"1", partition=0)
            yield Outgoing(OUT, b"2", partition=0)
            placed.extend(await context.flush())
            assert context.placed == placed
            yield Outgoing(OUT, b"3", partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage).run())
        await settle()
        await drained(who, task)
        assert [each.offset for each in placed] == [0, 1]
        assert await values(on, OUT) == [b"1", b"2", b"3"]

    virtual(main)


def test_a_drain_finishes_what_is_in_hand_and_leaves_the_rest() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, *(b"%d" % number for number in range(10)))

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            await asyncio.sleep(10)
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage, concurrency=4).run())
        await settle(3)
        await drained(who, task)
        assert len(await values(on, OUT)) == 4
        assert await committed(on) == 4

    virtual(main)


def test_a_drain_has_a_limit() -> None:
    async def main() -> float:
        on = cluster()
        await write(on, b"a")

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            await asyncio.sleep(1e5)
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on, drain_limit=25.0)
        task = asyncio.create_task(runner(who, stage).run())
        await settle(3)
        await drained(who, task)
        assert await committed(on) == 0
        return asyncio.get_running_loop().time()

    assert virtual(main) == pytest.approx(3 + 0.8 * 25, abs=1)


def test_a_record_that_kills_the_process_is_a_dead_letter_after_its_third_time() -> None:
    async def main() -> None:
        on = cluster(2)
        await write(on, b"a", b"killer", *[b"c"] * 5)
        await write(on, *[b"d"] * 5, partition=1)
        deaths = 0
        done: list[bytes] = []

        async def life(number: int) -> bool:
            who = member(on, "one", static=True)
            dying = asyncio.Event()

            async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
                assert record.value is not None
                if record.value == b"killer":
                    dying.set()
                    await asyncio.sleep(1e6)
                done.append(record.value)
                yield Outgoing(OUT, record.value, partition=0)

            def on_dead(record: Record, why: DeadLetter) -> Sequence[Outgoing]:
                return [Outgoing(OUT, b"ended", partition=0)]

            task = asyncio.create_task(runner(who, stage, on_dead=on_dead).run())
            waiting = asyncio.create_task(dying.wait())
            await asyncio.wait([waiting], timeout=30)
            waiting.cancel()
            if dying.is_set():
                await kill(who, task)
                return True
            await drained(who, task)
            return False

        while await life(deaths):
            deaths += 1
            assert deaths < 10
        assert deaths == 4  # the first among others, then three alone
        (letter,) = await read(on, "hr.dlq.test")
        assert letter.value == b"killer"
        assert dict(letter.headers)["__dlq.errors.message"].startswith(b"kills_the_process")
        out = await values(on, OUT)
        assert b"ended" in out
        assert set(out) == {b"a", b"c", b"d", b"ended"}
        assert await committed(on) == 7

    virtual(main)


def test_an_orderly_restart_takes_nothing_one_by_one() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")
        first = member(on)
        task = asyncio.create_task(runner(first).run())
        await settle()
        await drained(first, task)
        await write(on, *[b"b"] * 100)
        second = member(on, "two")
        run = runner(second)
        task = asyncio.create_task(run.run())
        await settle()
        assert not run.committer.careful
        await drained(second, task)
        assert await committed(on) == 101

    virtual(main)


def test_records_that_retention_took_unread_are_an_alarm_and_the_rest_goes_on() -> None:
    async def main() -> None:
        from pipeline import metrics

        on = cluster()
        await write(on, *(b"%d" % number for number in range(10)))
        first = member(on)
        task = asyncio.create_task(runner(first).run())
        await settle()
        await drained(first, task)
        await write(on, *[b"later"] * 30)
        on.trim(AT, 25)
        before = metrics.offset_gaps.labels(IN)._value.get()
        second = member(on, "two")
        task = asyncio.create_task(runner(second).run())
        await settle()
        await drained(second, task)
        assert metrics.offset_gaps.labels(IN)._value.get() - before == 15
        assert len(await values(on, OUT)) == 10 + 15

    virtual(main)


def test_a_trace_goes_on_in_what_the_stage_writes() -> None:
    async def main() -> None:
        on = cluster()
        parent = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
        log = on.connect("traced")
        await (await log.writer()).send(Outgoing(IN, b"x", headers=(("traceparent", parent),)))
        who = member(on)
        task = asyncio.create_task(runner(who).run())
        await settle()
        await drained(who, task)
        (record,) = await read(on, OUT)
        assert dict(record.headers)["traceparent"] == parent  # unchanged: tracing is off

    virtual(main)


def test_kinds_are_types_unions_functions_or_the_record_itself() -> None:
    from pipeline.attempt import read as as_kind

    record = Record(IN, 0, 0, 0, None, b'{"text": "hi"}', ())
    assert as_kind(record, Record) is record
    assert as_kind(record, Word) == Word("hi")
    assert as_kind(record, Word | None) == Word("hi")
    assert as_kind(record, lambda given: decode(given.value, Word).text) == "hi"


def test_a_stage_without_a_yield_is_refused_before_it_eats_a_record() -> None:
    async def main() -> None:
        async def forgot(record: Record, context: Context) -> None:
            return None

        with pytest.raises(TypeError, match="forgot has no `yield`"):
            runner(member(cluster()), forgot)

    virtual(main)


def test_a_stage_that_waits_for_something_cancelled_is_tried_again() -> None:
    async def main() -> None:
        on = cluster()
        await write(on, b"a")

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            if context.tries == 1:
                waited = asyncio.get_running_loop().create_future()
                waited.cancel()
                await waited
            yield Outgoing(OUT, record.value, partition=0)

        who = member(on)
        task = asyncio.create_task(runner(who, stage).run())
        await settle(10)
        await drained(who, task)
        assert await values(on, OUT) == [b"a"]

    virtual(main)


def test_a_partition_that_comes_back_goes_on_where_it_was() -> None:
    async def main() -> None:
        on = cluster(2)
        gate = asyncio.Event()
        calls: list[tuple[int, int]] = []

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            calls.append((record.partition, record.offset))
            if record.offset == 0:
                await gate.wait()
            yield Outgoing(OUT, record.value, partition=0)

        for partition in range(2):
            await write(on, *[b"x"] * 5, partition=partition)
        who = member(on)
        run = runner(who, stage)
        task = asyncio.create_task(run.run())
        await settle()
        for _ in range(3):
            on.rebalance(GROUP)
            await settle()
        assert len(calls) == 10  # nothing was begun again
        gate.set()
        await settle()
        assert [await committed(on, partition) for partition in range(2)] == [5, 5]
        await drained(who, task)

    virtual(main)


def test_a_partition_that_somebody_else_moved_on_is_read_from_there() -> None:
    async def main() -> None:
        on = cluster()
        gate = asyncio.Event()
        calls: list[int] = []

        async def stage(record: Record, context: Context) -> AsyncIterator[Emit]:
            calls.append(record.offset)
            if record.offset == 0 and context.record.value == b"slow" and len(calls) == 1:
                await gate.wait()
            yield Outgoing(OUT, record.value, partition=0)

        await write(on, b"slow", *[b"x"] * 4)
        one = member(on, "one")
        first = asyncio.create_task(runner(one, stage).run())
        await settle()
        one.log.pause()  # type: ignore[attr-defined]
        two = member(on, "two")
        second = asyncio.create_task(runner(two, stage).run())
        await settle(120)
        assert await committed(on) == 5  # the second did what the first had not
        await drained(two, second)
        one.log.resume()  # type: ignore[attr-defined]
        await write(on, b"y")
        gate.set()
        await settle(120)
        assert await committed(on) == 6
        assert calls[-1] == 5
        await drained(one, first)

    virtual(main)
