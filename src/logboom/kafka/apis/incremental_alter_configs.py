"""IncrementalAlterConfigs (KIP-339): set some settings of a stream or a broker, or reset them to their defaults."""

from typing import Any, Final

from logboom.base.errors import InvalidConfigError, InvalidRequestError
from logboom.broker.broker import Broker
from logboom.kafka.admin.altering import Changes, alter_all
from logboom.kafka.admin.resources import ResourceType
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import response_class
from logboom.metadata import SettingType, stream_setting

_API_KEY: Final = 44
_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_ON_LISTS: Final = {_APPEND: "append", 3: "subtract"}


async def handle(context: RequestContext, request: Any) -> Reply:
    """Change the settings of each resource."""
    return await alter_all(
        context.broker, request, response_class(_API_KEY, context.api_version), _changes, replace_all=False
    )


def _changes(broker: Broker, resource: Any) -> Changes:
    return {config.name: _value(broker, resource, config) for config in resource.configs}


def _value(broker: Broker, resource: Any, config: Any) -> str | None:
    operation = config.config_operation
    if operation == _DELETE:
        return None
    if operation not in (_SET, *_ON_LISTS):
        raise InvalidRequestError(f"{operation} is not an operation on a setting")
    if config.value is None:
        raise InvalidRequestError(f"the setting {config.name!r} has no value: delete it to have its default")
    value: str = config.value
    return value if operation == _SET else _list(broker, resource, config.name, value, operation)


def _list(broker: Broker, resource: Any, name: str, value: str, operation: int) -> str:
    """The new value of a list setting after an append, which adds no value twice, or a subtract."""
    stream = broker.catalog.stream(resource.resource_name) if resource.resource_type == ResourceType.TOPIC else None
    setting = None if stream is None else stream_setting(name)
    if stream is None or setting is None or setting.type is not SettingType.LIST:
        raise InvalidConfigError(f"{name!r} is no list: use set or delete, not {_ON_LISTS[operation]}")
    there = [
        one for one in setting.text_in_force(broker.config.stream_config(stream), stream.overrides).split(",") if one
    ]
    given = [one.strip() for one in value.split(",")]
    if operation == _APPEND:
        return ",".join(dict.fromkeys([*there, *given]))
    return ",".join(one for one in there if one not in given)


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=1, handle=handle, changes=True)
