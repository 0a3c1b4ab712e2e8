"""All consumer groups, and the offsets they committed, which are on disk."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.group import Group
from pipeline.embedded.member import State
from pipeline.embedded.store import Store, Transaction

_METADATA_MOST = 4096  # bytes: Kafka's offset.metadata.max.bytes


class Committed(NamedTuple):
    """A committed offset."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    """Group coordinator of the one broker there is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups: dict[str, Group] = {}

    def get(self, id: str) -> Group | None:
        """The group, also one that has nothing but committed offsets."""
        found = self._groups.get(id)
        if found is None and self._has_offsets(id):
            found = self._groups[id] = Group(id)
        return found

    def made(self, id: str) -> Group:
        """The group, new if need be; raises `Refused` for an empty name."""
        if not id:
            raise Refused(Code.invalid_group_id, "the group id is empty")
        return self.get(id) or self._groups.setdefault(id, Group(id))

    def known(self, id: str) -> Group:
        """The group; raises `Refused` if there is none, as a member of it is then unknown."""
        if not id:
            raise Refused(Code.invalid_group_id, "the group id is empty")
        found = self.get(id)
        if found is None:
            raise Refused(Code.unknown_member_id, "the group does not know this member")
        return found

    def all(self) -> list[Group]:
        """Every group, by name."""
        rows = self._store.db.execute("SELECT DISTINCT group_id FROM offsets").fetchall()
        names = {name for (name,) in rows} | set(self._groups)
        return [group for name in sorted(names) if (group := self.get(name)) is not None]

    async def delete(self, id: str) -> None:
        """Forget a group and its offsets; raises `Refused` unless it is there and empty."""
        group = self.get(id)
        if group is None:
            raise Refused(Code.group_id_not_found, f"there is no group {id}")
        if group.state is not State.EMPTY:
            raise Refused(Code.non_empty_group, f"group {id} has members")

        def apply(transaction: Transaction) -> None:
            transaction.db.execute("DELETE FROM offsets WHERE group_id = ?", (id,))

        def publish(_: None) -> None:
            self._groups.pop(id, None)

        await self._store.write(apply, publish)

    def check_commit(self, id: str, generation: int, member_id: str, instance: str | None) -> None:
        """Raises `Refused` unless this member may commit for the group now.

        A consumer that assigns itself its partitions comes without member and generation; the
        group has to be empty then.
        """
        if generation < 0 and not member_id and instance is None:
            group = self.made(id)
            if group.state is not State.EMPTY:
                raise Refused(Code.unknown_member_id, "the group has members; commit as one")
            return
        group = self._groups.get(id) or self.known(id)
        member = group.member(member_id, instance, generation)
        if group.state is State.COMPLETING:
            raise Refused(Code.rebalance_in_progress, "the group rebalances")
        group.touch(member)

    async def commit(self, id: str, offsets: list[Committed]) -> None:
        """Keep offsets; on return they are on disk."""
        rows = [(id, *each) for each in offsets]

        def apply(transaction: Transaction) -> None:
            transaction.db.executemany(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?)", rows
            )

        await self._store.write(apply)

    def committed(self, id: str) -> dict[tuple[str, int], Committed]:
        """All offsets of a group by (topic, partition)."""
        rows = self._store.db.execute(
            "SELECT topic, partition, offset, leader_epoch, metadata FROM offsets"
            " WHERE group_id = ? ORDER BY topic, partition",
            (id,),
        )
        return {(row[0], row[1]): Committed._make(row) for row in rows}

    def expire(self) -> None:
        """End the sessions that are over; to be called about once a second."""
        now = asyncio.get_running_loop().time()
        for group in list(self._groups.values()):
            group.expire(now)

    def _has_offsets(self, id: str) -> bool:
        row = self._store.db.execute(
            "SELECT 1 FROM offsets WHERE group_id = ? LIMIT 1", (id,)
        ).fetchone()
        return row is not None


def check_metadata(metadata: str) -> None:
    """Raises `Refused` if it is longer than Kafka takes."""
    if len(metadata) > _METADATA_MOST:
        raise Refused(
            Code.offset_metadata_too_large, f"metadata is limited to {_METADATA_MOST} characters"
        )
