"""IncrementalAlterConfigs (KIP-339): some settings of a stream, set or given back to their defaults."""

from typing import Any, Final

from logboom.base.errors import InvalidConfigError, InvalidRequestError
from logboom.kafka.altering import Changes, alter_all
from logboom.kafka.handler import Handler, Reply, RequestContext

_API_KEY: Final = 44
_SET: Final = 0
_DELETE: Final = 1
_ON_LISTS: Final = {2: "append", 3: "subtract"}


async def handle(context: RequestContext, request: Any) -> Reply:
    """Change the settings of each stream."""
    return await alter_all(context, request, _API_KEY, _changes, replace_all=False)


def _changes(context: RequestContext, resource: Any) -> Changes:
    return {config.name: _value(config) for config in resource.configs}


def _value(config: Any) -> str | None:
    operation = config.config_operation
    if operation == _DELETE:
        return None
    if operation in _ON_LISTS:
        raise InvalidConfigError(
            f"{config.name!r} cannot be changed with {_ON_LISTS[operation]}: no setting here is a list of several "
            "values; use set or delete"
        )
    if operation != _SET:
        raise InvalidRequestError(f"{operation} is no operation on a setting")
    if config.value is None:
        raise InvalidRequestError(f"the setting {config.name!r} has no value: delete it to have its default")
    value: str = config.value
    return value


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=1, handle=handle)
