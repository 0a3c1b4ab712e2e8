"""Consumer groups: coordinator, membership, description."""

from __future__ import annotations

from typing import Any

from pipeline.embedded.broker import NODE_ID, Broker, Call
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.group import Group
from pipeline.embedded.member import Joining, State
from pipeline.embedded.protocol import Answer, milliseconds

_GROUP_KEY = 0  # FindCoordinator: a group's coordinator, not a transaction's
_SESSION_TIMEOUTS = range(6_000, 1_800_001)  # ms: Kafka's group.min and max.session.timeout.ms
_ID_REQUIRED_FROM = 4  # the JoinGroup version in which a new member gets its id first (KIP-394)
_MAY_SKIP_FROM = 9  # the one that can say that an assignment stands (KIP-814)


async def find_coordinator(broker: Broker, request: Any, call: Call) -> Answer:
    """This broker coordinates every group; transactions it does not have."""
    keys = request.coordinator_keys if call.version >= 4 else (request.key,)
    coordinators = [_coordinator(broker, key, getattr(request, "key_type", 0)) for key in keys]
    return {"coordinators": coordinators} | (coordinators[0] if call.version < 4 else {})


def _coordinator(broker: Broker, key: str, key_type: int) -> Answer:
    if key_type != _GROUP_KEY:
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            # clients retry "coordinator not available" for ever; this they report
            "error_code": Code.transactional_id_authorization_failed,
            "error_message": "this broker has no transactions; use Apache Kafka for them",
        }
    found = {"node_id": NODE_ID, "host": broker.host, "port": broker.port}
    return found | {"key": key, "error_message": ""}


async def join_group(broker: Broker, request: Any, call: Call) -> Answer:
    """Join; answered when the group's rebalance is complete."""
    session = milliseconds(request.session_timeout)
    rebalance = getattr(request, "rebalance_timeout", request.session_timeout)
    instance = getattr(request, "group_instance_id", None)
    refused_answer: Answer = {
        "protocol_type": None,
        "protocol_name": None if call.version >= 7 else "",
        "leader": "",
        "member_id": request.member_id,
        "members": (),
    }
    try:
        if session not in _SESSION_TIMEOUTS:
            raise Refused(Code.invalid_session_timeout, f"session timeout {session} ms")
        known = bool(request.member_id) and broker.groups.get(request.group_id) is None
        group = (broker.groups.known if known else broker.groups.made)(request.group_id)
        joined = await group.join(
            Joining(
                request.member_id,
                instance,
                call.client_id,
                call.host,
                session / 1000,
                milliseconds(rebalance) / 1000,
                request.protocol_type,
                {protocol.name: protocol.metadata for protocol in request.protocols},
                id_required=call.version >= _ID_REQUIRED_FROM and instance is None,
                may_skip=call.version >= _MAY_SKIP_FROM,
            )
        )
    except Refused as refused:
        if refused.code is Code.member_id_required:
            refused_answer["member_id"] = refused.message
        return refused_answer | {"error_code": refused.code}
    return {
        "generation_id": joined.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member,
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance,
                "metadata": member.protocols[joined.protocol],
            }
            for member in joined.members
        ],
    }


async def sync_group(broker: Broker, request: Any, call: Call) -> Answer:
    """Give (the leader) or get the assignment; answered when it is known."""
    instance = getattr(request, "group_instance_id", None)
    try:
        group = broker.groups.known(request.group_id)
        member = group.member(request.member_id, instance, request.generation_id)
        for name, have in (("type", group.protocol_type), ("name", group.protocol)):
            if getattr(request, f"protocol_{name}", None) not in (None, have):
                raise Refused(Code.inconsistent_group_protocol, f"the group's {name} is {have}")
        assignments = {each.member_id: each.assignment for each in request.assignments}
        assignment = await group.sync(member, assignments)
    except Refused as refused:
        return {"error_code": refused.code, "assignment": b""}
    return {
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "assignment": assignment,
    }


async def heartbeat(broker: Broker, request: Any, call: Call) -> Answer:
    """Keep a session alive, and learn whether to join again."""
    instance = getattr(request, "group_instance_id", None)
    try:
        group = broker.groups.known(request.group_id)
        group.heartbeat(group.member(request.member_id, instance, request.generation_id))
    except Refused as refused:
        return {"error_code": refused.code}
    return {}


async def leave_group(broker: Broker, request: Any, call: Call) -> Answer:
    """Take members out at once, without waiting for their sessions to end."""
    many = call.version >= 3
    leaving = request.members if many else (request,)
    members = []
    for leaver in leaving:
        instance = getattr(leaver, "group_instance_id", None)
        answer: Answer = {"member_id": leaver.member_id, "group_instance_id": instance}
        try:
            broker.groups.known(request.group_id).leave(leaver.member_id, instance)
        except Refused as refused:
            answer["error_code"] = refused.code
        members.append(answer)
    if many:
        return {"members": members}
    return {"error_code": members[0].get("error_code", Code.none)}


async def describe_groups(broker: Broker, request: Any, call: Call) -> Answer:
    """Groups with their members; one that is not there is Dead."""
    return {"groups": [_described(broker.groups.get(id), id) for id in request.groups]}


def _described(group: Group | None, id: str) -> Answer:
    if group is None:
        group = Group(id, state=State.DEAD)
    settled = group.state is State.STABLE
    return {
        "group_id": id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol if settled else "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance,
                "client_id": member.client_id,
                "client_host": member.host,
                "member_metadata": member.protocols[group.protocol] if settled else b"",
                "member_assignment": member.assignment if settled else b"",
            }
            for member in group.members.values()
        ],
    }


async def list_groups(broker: Broker, request: Any, call: Call) -> Answer:
    """All groups, or those in the states asked for."""
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    return {
        "groups": [
            {
                "group_id": group.id,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
            }
            for group in broker.groups.all()
            if not states or group.state.value.lower() in states
        ]
    }


async def delete_groups(broker: Broker, request: Any, call: Call) -> Answer:
    """Forget empty groups and their offsets."""
    results = []
    for id in request.groups_names:
        answer: Answer = {"group_id": id}
        try:
            await broker.groups.delete(id)
        except Refused as refused:
            answer["error_code"] = refused.code
        except StorageError:
            answer["error_code"] = Code.kafka_storage_error
        results.append(answer)
    return {"results": results}
