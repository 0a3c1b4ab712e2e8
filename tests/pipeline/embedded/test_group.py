"""A consumer group shares partitions, whoever comes, goes or dies."""

import asyncio

import pytest

from pipeline.embedded.errors import Code, Refused
from pipeline.embedded.group import Group
from pipeline.embedded.member import Joined, Joining, State


def joining(
    member: str = "",
    instance: str | None = None,
    *,
    protocols: dict[str, bytes] | None = None,
    rebalance: float = 30.0,
    id_required: bool = False,
    may_skip: bool = True,
    protocol_type: str = "consumer",
) -> Joining:
    return Joining(
        member,
        instance,
        "client",
        "/host",
        session_timeout=10.0,
        rebalance_timeout=rebalance,
        protocol_type=protocol_type,
        protocols=protocols or {"range": b"topics"},
        id_required=id_required,
        may_skip=may_skip,
    )


async def settled(task: asyncio.Task[Joined]) -> Joined:
    return await asyncio.wait_for(task, 10)


def start(group: Group, said: Joining) -> asyncio.Task[Joined]:
    return asyncio.create_task(group.join(said))


async def stable_group(count: int, instances: bool = False) -> tuple[Group, list[Joined]]:
    """A stable group of `count` members; the first is the leader."""
    group = Group("g")
    first = await group.join(joining(instance="i0" if instances else None))
    others = [
        start(group, joining(instance=f"i{n}" if instances else None)) for n in range(1, count)
    ]
    await asyncio.sleep(0)
    again = start(group, joining(first.member, "i0" if instances else None))
    joined = [await settled(task) for task in (again, *others)]
    shares = {each.member: each.member.encode() for each in joined}
    await asyncio.gather(
        *(
            group.sync(group.members[each.member], shares if n == 0 else {})
            for n, each in reversed(list(enumerate(joined)))
        )
    )
    assert group.state is State.STABLE
    return group, joined


async def refusal(wanted: object) -> Code:
    with pytest.raises(Refused) as refused:
        await wanted  # type: ignore[misc]
    return refused.value.code


async def test_the_first_member_leads_and_is_told_of_all() -> None:
    group, joined = await stable_group(3)
    leader, *others = joined
    assert {each.leader for each in joined} == {leader.member}
    assert len(leader.members) == 3
    assert all(not each.members for each in others)
    assert {each.generation for each in joined} == {group.generation}


async def test_each_member_gets_what_the_leader_gave_it() -> None:
    group, joined = await stable_group(3)
    for each in joined:
        assert await group.sync(group.members[each.member], {}) == each.member.encode()


async def test_a_new_dynamic_member_gets_its_id_first() -> None:
    group = Group("g")
    with pytest.raises(Refused) as refused:
        await group.join(joining(id_required=True))
    assert refused.value.code is Code.member_id_required
    joined = await group.join(joining(refused.value.message, id_required=True))
    assert joined.member == refused.value.message


async def test_a_newcomer_makes_the_others_join_again() -> None:
    group, joined = await stable_group(1)
    task = start(group, joining())
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        group.heartbeat(group.member(joined[0].member, None))
    assert refused.value.code is Code.rebalance_in_progress
    await group.join(joining(joined[0].member))
    assert (await settled(task)).generation == group.generation


async def test_a_rebalance_goes_on_without_who_does_not_join_in_time() -> None:
    group = Group("g")
    absent = await group.join(joining(rebalance=0.05))
    present = await settled(start(group, joining(rebalance=0.05)))
    assert absent.member not in group.members
    assert present.leader == present.member


async def test_members_that_never_ask_for_their_share_are_removed() -> None:
    group = Group("g")
    await group.join(joining(rebalance=0.05))
    async with asyncio.timeout(10):
        while group.members:  # noqa: ASYNC110 (the group tells nobody)
            await asyncio.sleep(0.01)
    assert group.state is State.EMPTY


async def test_a_session_that_ends_lets_the_others_share_anew() -> None:
    group, joined = await stable_group(2)
    now = asyncio.get_running_loop().time()
    group.touch(group.members[joined[0].member])
    group.members[joined[1].member].deadline = now - 1
    group.expire(now)
    assert list(group.members) == [joined[0].member]
    assert group.state is State.PREPARING


async def test_who_waits_for_an_answer_is_alive() -> None:
    group, joined = await stable_group(2)
    task = start(group, joining(joined[0].member, protocols={"range": b"other"}))
    await asyncio.sleep(0)
    group.touch(group.members[joined[1].member])
    group.expire(asyncio.get_running_loop().time() + 5)
    assert joined[0].member in group.members
    group.leave(joined[1].member, None)
    await settled(task)


async def test_the_last_one_leaves_an_empty_group_and_a_new_generation() -> None:
    group, joined = await stable_group(1)
    group.leave(joined[0].member, None)
    assert (group.state, group.generation) == (State.EMPTY, joined[0].generation + 1)
    with pytest.raises(Refused) as refused:
        group.member(joined[0].member, None)
    assert refused.value.code is Code.unknown_member_id


async def test_a_static_member_that_comes_back_keeps_its_share_without_a_rebalance() -> None:
    group, joined = await stable_group(2, instances=True)
    back = await group.join(joining(instance="i1"))
    assert group.state is State.STABLE
    assert back.generation == joined[1].generation
    assert back.member != joined[1].member
    assert await group.sync(group.members[back.member], {}) == joined[1].member.encode()


async def test_the_member_it_replaces_is_fenced() -> None:
    group, joined = await stable_group(2, instances=True)
    await group.join(joining(instance="i1"))
    with pytest.raises(Refused) as refused:
        group.heartbeat(group.member(joined[1].member, "i1"))
    assert refused.value.code is Code.fenced_instance_id


async def test_a_static_leader_that_comes_back_is_told_that_the_shares_stand() -> None:
    group, (leader, _) = await stable_group(2, instances=True)
    older = await group.join(joining(instance="i0", may_skip=False))
    assert (older.leader, older.members) == (leader.member, ())
    back = await group.join(joining(instance="i0"))
    assert back.skip_assignment
    assert back.leader == back.member
    assert len(back.members) == 2


async def test_a_static_member_with_another_subscription_starts_a_rebalance() -> None:
    group, joined = await stable_group(2, instances=True)
    task = start(group, joining(instance="i1", protocols={"range": b"other"}))
    await asyncio.sleep(0)
    assert group.state is State.PREPARING
    await group.join(joining(joined[0].member, "i0"))
    await settled(task)


async def test_a_static_member_can_be_removed_by_its_instance() -> None:
    group, joined = await stable_group(2, instances=True)
    assert group.leave("", "i1") == joined[1].member
    assert list(group.members) == [joined[0].member]


async def test_the_assignor_that_most_prefer_of_those_all_know_wins() -> None:
    group = Group("g")
    first = await group.join(joining(protocols={"a": b"", "b": b"", "c": b""}))
    tasks = [start(group, joining(protocols={"c": b"", "b": b""})) for _ in range(2)]
    await asyncio.sleep(0)
    joined = await group.join(joining(first.member, protocols={"a": b"", "b": b"", "c": b""}))
    assert joined.protocol == "c"
    await asyncio.gather(*tasks)


async def test_without_a_common_assignor_or_type_a_member_is_refused() -> None:
    group, _ = await stable_group(1)
    other = joining(protocols={"sticky": b""})
    assert await refusal(group.join(other)) is Code.inconsistent_group_protocol
    assert (
        await refusal(group.join(joining(protocol_type="connect")))
        is Code.inconsistent_group_protocol
    )


async def test_a_lost_answer_is_given_again() -> None:
    group, joined = await stable_group(2)
    again = await group.join(joining(joined[1].member))
    assert again == joined[1]
    assert group.state is State.STABLE


async def test_an_old_generation_is_refused() -> None:
    group, joined = await stable_group(1)
    with pytest.raises(Refused) as refused:
        group.member(joined[0].member, None, joined[0].generation - 1)
    assert refused.value.code is Code.illegal_generation


async def test_a_caller_that_gives_up_does_not_hold_up_the_others() -> None:
    group = Group("g")
    first = await group.join(joining(rebalance=0.05))
    gone = start(group, joining(rebalance=0.05))
    await asyncio.sleep(0)
    gone.cancel()
    joined = await settled(start(group, joining(first.member, rebalance=0.05)))
    assert joined.member == first.member
    assert list(group.members) == [first.member]
