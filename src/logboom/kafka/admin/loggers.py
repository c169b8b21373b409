"""Broker loggers (KIP-412). There is one, `root`: the broker's own log, whose level is the setting `logboom.log.level`.

Kafka forgets such a level at a restart; here it is a setting that was changed at run time, and is kept.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from logboom.base.errors import InvalidConfigError, InvalidRequestError
from logboom.broker.broker import Broker
from logboom.kafka.admin.configs import STRING, Described, Source

_ROOT: Final = "root"
_SETTING: Final = "logboom.log.level"
_OURS: Final = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "error",
}
"""The nearest level for each of Kafka's."""
_KAFKAS: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


def describe_loggers(broker: Broker) -> Iterator[Described]:
    """The loggers and their levels."""
    entry = broker.dynamic_settings.table.get(_SETTING)
    if entry is None:
        return  # a broker without a log of its own
    level = _KAFKAS[entry.text(broker.dynamic_settings.value(entry)) or "info"]
    yield Described(
        name=_ROOT,
        value=level,
        type=STRING,
        source=Source.DYNAMIC_BROKER_LOGGER,
        read_only=False,
        sensitive=False,
        documentation="The lowest level that the broker logs.",
        synonyms=((_ROOT, level, Source.DYNAMIC_BROKER_LOGGER),),
    )


async def change_loggers(
    broker: Broker, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set levels; None is the level that the broker was started with. Raises LogboomError."""
    if not name:
        raise InvalidRequestError("loggers belong to a broker: name the broker")
    levels: dict[str, str | None] = {}
    for logger, level in changes.items():
        if logger != _ROOT:
            raise InvalidConfigError(f"there is one logger, {_ROOT!r}, and no {logger!r}")
        if level is not None and level.upper() not in _OURS:
            raise InvalidConfigError(f"{logger}={level!r}: expected {', '.join(_OURS)}")
        levels[_SETTING] = None if level is None else _OURS[level.upper()]
    await broker.catalog.change_broker_config(name, levels, validate_only=validate_only)
