"""A group shares partitions, hands them over, and lets only their owner commit."""

from collections.abc import Sequence

import pytest

from pipeline.log import (
    Commit,
    Log,
    LogError,
    LogUnavailable,
    NotOwner,
    Outgoing,
    TopicPartition,
)
from tests.pipeline.contract.stand import Books, new_name, read, topic, until, write


class Groups:
    async def test_a_group_shares_the_partitions_and_hands_them_over(self, log: Log) -> None:
        name, group = await topic(log, 4), new_name()
        everything = {TopicPartition(name, p) for p in range(4)}
        books, more = Books(), Books()
        one = await log.group(group, [name], listener=books)
        await until(lambda: books.owned == everything, one)
        assert one.assignment() == everything
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(books.owned) == len(more.owned) == 2, one, two)
        assert books.owned | more.owned == everything
        assert books.revocations == 1
        await two.close()
        await until(lambda: books.owned == everything, one)

    async def test_a_group_begins_at_the_start_and_goes_on_where_it_committed(
        self, log: Log
    ) -> None:
        name, group = await topic(log), new_name()
        at = TopicPartition(name, 0)
        await write(log, *(Outgoing(name, b"%d" % i) for i in range(5)))
        one = await log.group(group, [name])
        assert [each.offset for each in await read(one, 5)] == [0, 1, 2, 3, 4]
        await one.commit({at: Commit(3, "1:bits")})
        await one.commit({})  # nothing is left as it is
        assert await log.admin.committed(group, [at]) == {at: Commit(3, "1:bits")}
        await one.close()
        two = await log.group(group, [name])
        assert [each.offset for each in await read(two, 2)] == [3, 4]

    async def test_a_note_beyond_4096_bytes_is_refused(self, log: Log) -> None:
        name, group = await topic(log), new_name()
        at = TopicPartition(name, 0)
        books = Books()
        reader = await log.group(group, [name], listener=books)
        await until(lambda: bool(books.owned), reader)
        await reader.commit({at: Commit(0, "x" * 4096)})
        with pytest.raises(LogError) as caught:
            await reader.commit({at: Commit(0, "x" * 4097)})
        assert not isinstance(caught.value, LogUnavailable | NotOwner)
        assert await log.admin.committed(group, [at]) == {at: Commit(0, "x" * 4096)}

    async def test_a_local_position_is_kept_through_a_rebalance(self, log: Log) -> None:
        """Committed is 0, read is 4: after somebody else joined, the member goes on at 4."""
        name, group = await topic(log, 2), new_name()
        await write(log, *(Outgoing(name, b"v", partition=i % 2) for i in range(8)))
        local = {TopicPartition(name, 0): 4, TopicPartition(name, 1): 4}
        books, more = Books(), Books(local)
        one = await log.group(group, [name], listener=books)
        await read(one, 8)
        books.local = local
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(books.owned) == len(more.owned) == 1, one, two)
        await write(log, *(Outgoing(name, b"new", partition=p) for p in range(2)))
        found = [*await read(one, 1), *await read(two, 1)]
        assert [(each.value, each.offset) for each in found] == [(b"new", 4)] * 2

    async def test_a_commit_in_the_revoke_callback_counts(self, log: Log) -> None:
        name, group = await topic(log, 2), new_name()
        at = TopicPartition(name, 0)
        await write(log, *(Outgoing(name, b"v", partition=0) for _ in range(9)))
        books, more = Books(), Books()
        one = await log.group(group, [name], listener=books)
        await until(lambda: len(books.owned) == 2, one)

        async def commit() -> None:
            await one.commit({at: Commit(7, "last words")})

        books.before_revoked = commit
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(more.owned) == 1, one, two)
        assert await log.admin.committed(group, [at]) == {at: Commit(7, "last words")}

    async def test_a_former_owner_cannot_commit(self, log: Log) -> None:
        name, group = await topic(log, 2), new_name()
        books, more = Books(), Books()
        one = await log.group(group, [name], listener=books)
        await until(lambda: len(books.owned) == 2, one)
        two = await log.group(group, [name], listener=more)
        await until(lambda: len(books.owned) == len(more.owned) == 1, one, two)
        (lost,) = more.owned
        with pytest.raises(NotOwner):
            await one.commit({lost: Commit(1)})
        await two.commit({lost: Commit(1)})

    async def test_range_gives_one_member_the_same_partitions_of_every_topic(
        self, log: Log
    ) -> None:
        first, second, group = await topic(log, 4), await topic(log, 4), new_name()
        books, more = Books(), Books()
        one = await log.group(group, [first, second], listener=books, assignor="range")
        two = await log.group(group, [first, second], listener=more, assignor="range")
        await until(lambda: len(books.owned) == len(more.owned) == 4, one, two)
        for owned in (books.owned, more.owned):
            numbers = [{at.partition for at in owned if at.topic == t} for t in (first, second)]
            assert numbers[0] == numbers[1]

    async def test_a_static_member_that_comes_back_disturbs_nobody(self, log: Log) -> None:
        name, group = await topic(log, 2), new_name()
        books, more, again = Books(), Books(), Books()
        one = await log.group(group, [name], listener=books, instance_id=f"{group}-1")
        two = await log.group(group, [name], listener=more, instance_id=f"{group}-2")
        await until(lambda: len(books.owned) == len(more.owned) == 1, one, two)
        before, revocations = set(more.owned), books.revocations
        await two.close()
        back = await log.group(group, [name], listener=again, instance_id=f"{group}-2")
        await until(lambda: bool(again.owned), one, back)
        assert again.owned == before
        assert books.revocations == revocations

    async def test_a_fault_in_a_callback_is_raised_where_it_is_seen(self, log: Log) -> None:
        name, group = await topic(log), new_name()

        class Faulty(Books):
            async def on_assigned(
                self, partitions: Sequence[TopicPartition]
            ) -> dict[TopicPartition, int]:
                raise ZeroDivisionError("of the listener")

        reader = await log.group(group, [name], listener=Faulty())
        with pytest.raises(Exception, match="of the listener"):
            await until(lambda: False, reader)
