"""Configs of topics described and altered. The broker itself has none that can be set."""

from __future__ import annotations

from typing import Any

from pipeline.embedded.broker import NODE_ID, Broker, Call
from pipeline.embedded.configs import CONFIGS, TopicConfig, Type
from pipeline.embedded.errors import Code, Refused, StorageError
from pipeline.embedded.protocol import Answer

_TOPIC, _BROKER = 2, 4  # resource types
_FROM_TOPIC, _FROM_DEFAULT = 1, 5  # config sources
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)  # operations of IncrementalAlterConfigs


def described(config: TopicConfig) -> list[Answer]:
    """Every config of a topic as DescribeConfigs shows it."""
    shown = []
    for name, kind in CONFIGS.items():
        own = config.overrides.get(name)
        synonyms = []
        if own is not None:
            synonyms.append({"name": name, "value": own, "source": _FROM_TOPIC})
        if kind.broker_name is not None:
            default = {"name": kind.broker_name, "value": kind.default, "source": _FROM_DEFAULT}
            synonyms.append(default)
        shown.append(
            {
                "name": name,
                "value": kind.default if own is None else own,
                "read_only": False,
                "config_source": _FROM_DEFAULT if own is None else _FROM_TOPIC,
                "is_sensitive": False,
                "synonyms": synonyms,
                "config_type": kind.type,
                "documentation": None,
            }
        )
    return shown


async def describe_configs(broker: Broker, request: Any, call: Call) -> Answer:
    """The configs of topics; a broker shows none."""
    return {"results": [_described(broker, request, resource) for resource in request.resources]}


def _described(broker: Broker, request: Any, resource: Any) -> Answer:
    answer: Answer = {
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": (),
    }
    try:
        if resource.resource_type == _BROKER:
            _check_broker(resource.resource_name)
            return answer
        _check_topic_type(resource.resource_type)
        configs = described(broker.catalog.topic(resource.resource_name).config)
    except Refused as refused:
        return answer | {"error_code": refused.code, "error_message": refused.message}
    if resource.configuration_keys is not None:
        configs = [each for each in configs if each["name"] in resource.configuration_keys]
    if not request.include_synonyms:
        configs = [each | {"synonyms": ()} for each in configs]
    return answer | {"configs": configs}


def _check_broker(name: str) -> None:
    if name not in ("", str(NODE_ID)):
        raise Refused(Code.invalid_request, f"Unexpected broker id, expected {NODE_ID}")


def _check_topic_type(resource_type: int) -> None:
    if resource_type != _TOPIC:
        raise Refused(Code.invalid_request, f"resource type {resource_type} has no configs here")


async def alter_configs(broker: Broker, request: Any, call: Call) -> Answer:
    """Replace all configs of a topic."""
    return {
        "responses": [
            await _altered(
                broker,
                resource,
                {config.name: config.value for config in resource.configs},
                validate_only=request.validate_only,
            )
            for resource in request.resources
        ]
    }


async def incremental_alter_configs(broker: Broker, request: Any, call: Call) -> Answer:
    """Set, delete, append to and subtract from single configs of a topic."""
    return {
        "responses": [
            await _altered(broker, resource, None, validate_only=request.validate_only)
            for resource in request.resources
        ]
    }


async def _altered(
    broker: Broker, resource: Any, configs: dict[str, str] | None, *, validate_only: bool
) -> Answer:
    answer: Answer = {
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
    try:
        _check_topic_type(resource.resource_type)
        if configs is None:
            current = broker.catalog.topic(resource.resource_name).config.overrides
            configs = _merged(dict(current), resource.configs)
        await broker.catalog.configure(resource.resource_name, configs, validate_only=validate_only)
    except Refused as refused:
        return answer | {"error_code": refused.code, "error_message": refused.message}
    except StorageError as error:
        return answer | {"error_code": Code.kafka_storage_error, "error_message": str(error)}
    return answer


def _merged(configs: dict[str, str], changes: Any) -> dict[str, str]:
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation == _DELETE:
            configs.pop(name, None)
            continue
        if operation == _SET:
            configs[name] = change.value
            continue
        kind = CONFIGS.get(name)
        if kind is None or kind.type != Type.LIST:
            raise Refused(
                Code.invalid_config, f"Can't append to or subtract from {name}: it is no list"
            )
        items = [item for item in configs.get(name, kind.default).split(",") if item]
        given = change.value.split(",")
        if operation == _APPEND:
            items += [item for item in given if item not in items]
        else:
            items = [item for item in items if item not in given]
        configs[name] = ",".join(items)
    return configs
