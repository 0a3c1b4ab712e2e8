"""Who is in a group: members by id, static ones by their instance, one of them the leader."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.member import Joining, Member, refuse


@dataclass(slots=True, eq=False, kw_only=True)
class Roster:
    """The members of a group."""

    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # static instance → member
    leader: str = ""
    protocol_type: str = ""

    def check_protocols(self, joining: Joining) -> None:
        """Raises `Refused` unless the member has an assignor that all others have, too."""
        others = [each for each in self.members.values() if each.id != joining.member]
        same_type = not self.members or joining.protocol_type == self.protocol_type
        common = set(joining.protocols).intersection(*(each.protocols for each in others))
        if not (joining.protocol_type and common and same_type):
            raise Refused(
                Code.inconsistent_group_protocol, "no assignor that all members of the group know"
            )

    def forget(self, member: Member) -> None:
        """Take a member out; what it waits for is refused."""
        gone = Refused(Code.unknown_member_id, "the member was removed")
        refuse(member.joining, gone)
        refuse(member.syncing, gone)
        self.members.pop(member.id, None)
        if member.instance is not None and self.instances.get(member.instance) == member.id:
            del self.instances[member.instance]
        if self.leader == member.id:
            self.leader = next(iter(self.members), "")

    def touch(self, member: Member) -> None:
        """Its session starts anew."""
        member.deadline = asyncio.get_running_loop().time() + member.session_timeout
