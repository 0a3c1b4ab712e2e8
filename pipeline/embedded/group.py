"""One consumer group: members, generations, rebalances. The classic protocol's state machine.

No I/O but the event loop's timers. The rules are those of Kafka's group coordinator (KIP-62
rebalance timeout, KIP-345 static members, KIP-394 member id round trip).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.member import (
    Joined,
    Joining,
    Member,
    State,
    elected_protocol,
    is_open,
    refuse,
)
from pipeline.embedded.roster import Roster


@dataclass(slots=True, eq=False)
class Group(Roster):
    """A group of consumers that share partitions."""

    id: str
    state: State = State.EMPTY
    generation: int = 0
    protocol: str = ""
    pending: dict[str, float] = field(default_factory=dict)  # ids given out → loop time they end
    _timer: asyncio.TimerHandle | None = None  # ends the rebalance, or the wait for syncs

    # --- joining ---

    async def join(self, joining: Joining) -> Joined:
        """Join or join again; returns when the rebalance is complete. Raises `Refused`."""
        self.check_protocols(joining)
        if not joining.member:
            if joining.instance is not None and joining.instance in self.instances:
                return await self._replace(self.instances[joining.instance], joining)
            if joining.id_required:
                raise self._id_required(joining)
            return await self._rejoin(self._admit(f"{joining.client_id}-{uuid.uuid4()}", joining))
        if joining.member in self.pending:
            del self.pending[joining.member]
            return await self._rejoin(self._admit(joining.member, joining))
        member = self.member(joining.member, joining.instance)
        changed = member.protocols != joining.protocols
        self._update(member, joining)
        if not changed and self.state is State.COMPLETING:
            return self._joined(member)  # its answer got lost
        if not changed and self.state is State.STABLE and member.id != self.leader:
            return self._joined(member)
        return await self._rejoin(member)

    def _id_required(self, joining: Joining) -> Refused:
        prefix = joining.instance or joining.client_id
        id = f"{prefix}-{uuid.uuid4()}"
        self.pending[id] = asyncio.get_running_loop().time() + joining.session_timeout
        return Refused(Code.member_id_required, id)

    def _admit(self, id: str, joining: Joining) -> Member:
        member = Member(
            id, joining.instance, joining.client_id, joining.host, 0.0, 0.0, joining.protocols
        )
        self._update(member, joining)
        if not self.members:
            self.protocol_type, self.leader = joining.protocol_type, id
        self.members[id] = member
        if joining.instance is not None:
            self.instances[joining.instance] = id
        return member

    def _update(self, member: Member, joining: Joining) -> None:
        member.session_timeout = joining.session_timeout
        member.rebalance_timeout = joining.rebalance_timeout
        member.protocols = joining.protocols
        self.touch(member)

    async def _replace(self, old_id: str, joining: Joining) -> Joined:
        """A static member is back under a new member id; the old one is fenced."""
        old = self.members.pop(old_id)
        fenced = Refused(Code.fenced_instance_id, "another member has taken this instance id")
        refuse(old.joining, fenced)
        refuse(old.syncing, fenced)
        was_leader, changed = self.leader == old_id, old.protocols != joining.protocols
        member = self._admit(f"{joining.instance}-{uuid.uuid4()}", joining)
        member.assignment = old.assignment
        if was_leader:
            self.leader = member.id
        if self.state is State.STABLE and not changed:
            joined = self._joined(member)
            if not was_leader:
                return joined
            # no rebalance, and no new assignment: an older client does none if another one leads
            if joining.may_skip:
                return joined._replace(skip_assignment=True)
            return joined._replace(leader=old_id, members=())
        return await self._rejoin(member)

    async def _rejoin(self, member: Member) -> Joined:
        refuse(member.joining, Refused(Code.rebalance_in_progress, "the member asked again"))
        member.joining = asyncio.get_running_loop().create_future()
        joined = member.joining
        if self.state is not State.PREPARING:
            self._prepare()
        self._complete_if_all_joined()
        return await joined

    def _prepare(self) -> None:
        for member in self.members.values():
            member.assignment = b""
            refuse(member.syncing, Refused(Code.rebalance_in_progress, "the group rebalances"))
        self.state = State.PREPARING
        self._restart_timer(self._complete)

    def _complete_if_all_joined(self) -> None:
        waiting = all(is_open(member.joining) for member in self.members.values())
        if self.state is State.PREPARING and waiting and not self.pending:
            self._complete()

    def _complete(self) -> None:
        """End the rebalance without the dynamic members that did not join in time."""
        late = [each for each in self.members.values() if not is_open(each.joining)]
        for member in late:
            if member.instance is None:
                self.forget(member)
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        there = [each for each in self.members.values() if is_open(each.joining)]
        if not there:
            self._restart_timer(self._complete)  # only static members, all away: wait on
            return
        if self.leader not in {member.id for member in there}:
            self.leader = there[0].id
        self.protocol = elected_protocol(self.members.values())
        self.state = State.COMPLETING
        for member in there:
            self.touch(member)
            assert member.joining is not None  # it is open
            member.joining.set_result(self._joined(member))
            member.joining = None
        self._restart_timer(self._expire_unsynced)

    def _joined(self, member: Member) -> Joined:
        members = tuple(self.members.values()) if member.id == self.leader else ()
        return Joined(self.generation, self.protocol, self.leader, member.id, members)

    # --- after joining ---

    async def sync(self, member: Member, assignments: dict[str, bytes]) -> bytes:
        """This member's assignment, once the leader gave all of them. Raises `Refused`."""
        if self.state is State.STABLE:
            return member.assignment
        if self.state is not State.COMPLETING:
            raise Refused(Code.rebalance_in_progress, "the group rebalances")
        refuse(member.syncing, Refused(Code.rebalance_in_progress, "the member asked again"))
        member.syncing = asyncio.get_running_loop().create_future()
        assigned = member.syncing
        if member.id == self.leader:
            self._assign(assignments)
        return await assigned

    def _assign(self, assignments: dict[str, bytes]) -> None:
        self.state = State.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
            if is_open(member.syncing):
                assert member.syncing is not None
                self.touch(member)
                member.syncing.set_result(member.assignment)
            member.syncing = None
        self._restart_timer(None)

    def heartbeat(self, member: Member) -> None:
        """Keep the session alive. Raises `Refused` when the member has to join again."""
        self.touch(member)
        if self.state is State.PREPARING:
            raise Refused(Code.rebalance_in_progress, "the group rebalances")

    def leave(self, member_id: str, instance: str | None) -> str:
        """Remove a member; a static one may be named by its instance. Returns its member id."""
        if instance is not None and not member_id:
            member_id = self.instances.get(instance, "")
        if member_id in self.pending:
            del self.pending[member_id]
            self._complete_if_all_joined()
            return member_id
        self.remove(self.member(member_id, instance))
        return member_id

    def remove(self, member: Member) -> None:
        """Take a member out, and let the others share what it had."""
        self.forget(member)
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare()
        self._complete_if_all_joined()

    # --- checks and timers ---

    def member(self, member_id: str, instance: str | None, generation: int | None = None) -> Member:
        """The member of that id; raises `Refused` if unknown, fenced or of another generation."""
        if instance is not None and self.instances.get(instance, member_id) != member_id:
            raise Refused(Code.fenced_instance_id, "another member has this instance id")
        member = self.members.get(member_id)
        if member is None or self.state in (State.EMPTY, State.DEAD):
            raise Refused(Code.unknown_member_id, "the group does not know this member")
        if generation is not None and generation != self.generation:
            raise Refused(Code.illegal_generation, f"the group is at {self.generation}")
        return member

    def expire(self, now: float) -> None:
        """Remove members whose session is over; who waits for an answer is alive."""
        for id in [id for id, deadline in self.pending.items() if deadline < now]:
            del self.pending[id]
        for member in list(self.members.values()):
            waits = is_open(member.joining) or is_open(member.syncing)
            if member.deadline < now and not waits and member.id in self.members:
                self.remove(member)
        self._complete_if_all_joined()

    def _expire_unsynced(self) -> None:
        """Members that joined and never asked for their assignment hold up the others."""
        for member in list(self.members.values()):
            if not is_open(member.syncing):
                self.forget(member)
        self._prepare()
        self._complete_if_all_joined()

    def _become_empty(self) -> None:
        self.state, self.protocol, self.leader = State.EMPTY, "", ""
        self._restart_timer(None)

    def _restart_timer(self, then: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if then is not None:
            longest = max((each.rebalance_timeout for each in self.members.values()), default=0.0)
            self._timer = asyncio.get_running_loop().call_later(longest, then)
