"""What AlterConfigs and IncrementalAlterConfigs share: finding each resource, changing it, and its own result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from logboom.base.errors import InvalidConfigError, InvalidRequestError, LogboomError, UnknownStreamError
from logboom.kafka.admin.draining import DRAINING, change_draining
from logboom.kafka.admin.fixed_settings import FIXED_SETTINGS
from logboom.kafka.admin.listener_settings import ADVERTISED_LISTENERS, refusal
from logboom.kafka.admin.loggers import change_loggers
from logboom.kafka.admin.resources import ResourceType
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.wire.messages import make, milliseconds, nested

if TYPE_CHECKING:
    from logboom.broker.broker import Broker

Changes = Mapping[str, str | None]
"""New values by name; None resets a setting to its default."""

_NOT_CHANGED: Final = frozenset({*FIXED_SETTINGS, ADVERTISED_LISTENERS})

_WITHOUT_SETTINGS: Final[Mapping[int, str]] = {
    ResourceType.CLIENT_METRICS: "subscriptions to the metrics of clients (KIP-714) are not supported",
    ResourceType.GROUP: "groups have no settings of their own: their members bring them",
}


async def alter_all(
    broker: Broker,
    request: Any,
    response_cls: Any,
    changes_of: Callable[[Broker, Any], Changes],
    *,
    replace_all: bool,
) -> Any:
    """Change each resource by itself. `changes_of` reads a resource's changes, or raises LogboomError.

    Returns the response. `replace_all` sets what a resource's changes do not name to its default.
    """
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    responses: list[Any] = []
    for resource in request.resources:
        error = None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(f"the request names {resource.resource_name!r} more than once")
            _check_names(resource)
            change = _change_of(broker, resource)
            await change(
                resource.resource_name,
                _changes_for(resource.resource_type, partial(changes_of, broker, resource)),
                replace_all=replace_all,
                validate_only=request.validate_only,
            )
        except LogboomError as refused:
            error = refused
        responses.append(
            make(
                nested(response_cls, "responses"),
                error_code=error_code(error),
                error_message=error_message(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return make(response_cls, throttle_time=milliseconds(0), responses=tuple(responses))


def _changes_for(kind: int, changes: Callable[[], Changes]) -> Changes | Callable[[], Changes]:
    """The changes to make; for a stream as a function, since they may depend on settings that others change
    meanwhile."""
    if kind == ResourceType.TOPIC:
        return changes
    return _without_fixed(changes()) if kind == ResourceType.BROKER else changes()


async def _change_loggers(
    broker: Broker, name: str, changes: Changes, *, replace_all: bool, validate_only: bool
) -> None:
    if replace_all:  # Kafka's AlterConfigs does not know loggers either
        raise InvalidRequestError("only IncrementalAlterConfigs can change loggers")
    await change_loggers(broker, name, changes, validate_only=validate_only)


def _check_names(resource: Any) -> None:
    for name, times in Counter(one.name for one in resource.configs).items():
        if times > 1:
            raise InvalidRequestError(f"the setting {name!r} is named {times} times")


def _without_fixed(changes: Changes) -> Changes:
    """The changes of a broker's settings but those that set a fixed one to its default. Raises InvalidConfigError."""
    for name, value in changes.items():
        if value is not None and name in FIXED_SETTINGS:
            fixed = FIXED_SETTINGS[name]
            raise InvalidConfigError(f"{name} is {fixed.value} and cannot be changed: {fixed.why}")
    if changes.get(ADVERTISED_LISTENERS) is not None:
        raise refusal()
    return {name: value for name, value in changes.items() if name not in _NOT_CHANGED}


def _change_of(broker: Broker, resource: Any) -> Callable[..., Awaitable[object]]:
    """The method that changes the settings of a resource. Raises LogboomError."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.BROKER and any(config.name == DRAINING for config in resource.configs):
        return partial(change_draining, broker)
    if kind == ResourceType.TOPIC:
        if broker.catalog.stream(name) is None:
            raise UnknownStreamError(f"no stream is named {name!r}")
        return broker.catalog.change_stream_config
    if kind == ResourceType.BROKER:
        broker.catalog.check_broker_name(name)
        return broker.catalog.change_broker_config
    if kind == ResourceType.BROKER_LOGGER:
        broker.catalog.check_broker_name(name)
        return partial(_change_loggers, broker)
    if kind in _WITHOUT_SETTINGS:
        raise InvalidConfigError(_WITHOUT_SETTINGS[kind])
    raise InvalidRequestError(f"resource type {kind} has no settings here")
