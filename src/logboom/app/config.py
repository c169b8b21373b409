"""The configuration of a node: one model for the file, the environment and the flags.

Knows which packages have settings and which source wins: flags over environment over file. Each setting is declared by
the package that uses it.
"""

import logging
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from logboom.base.dynamic import Dynamic
from logboom.base.settings import Problem, Settings, SettingsError, YamlDocument, dotted, load
from logboom.broker.config import BrokerConfig
from logboom.http.config import HttpConfig
from logboom.kafka.config import KafkaConfig
from logboom.nats.config import NatsConfig
from logboom.peer.config import PeerConfig

ENVIRONMENT_PREFIX: Final = "LOGBOOM_"
_LEVEL_SEPARATOR: Final = "__"
_NULLS: Final = ("null", "~")


class LogFormat(StrEnum):
    """The format of the log."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level's number in the standard library."""
        return logging.getLevelNamesMapping()[self.value.upper()]


class LogConfig(Settings):
    """The broker's own log, on standard error."""

    level: Annotated[LogLevel, Dynamic()] = LogLevel.INFO
    """The lowest level that is logged: debug, info, warning or error."""

    format: LogFormat = LogFormat.AUTO
    """text is for people, json for programs; auto is text on a terminal and JSON elsewhere."""


class NodeConfig(Settings):
    """One node: a broker and its front ends."""

    broker: BrokerConfig = BrokerConfig()
    kafka: KafkaConfig = KafkaConfig()
    http: HttpConfig = HttpConfig()
    peer: PeerConfig = PeerConfig()
    nats: NatsConfig = NatsConfig()
    log: LogConfig = LogConfig()


def load_node_config(
    document: YamlDocument | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> NodeConfig:
    """The settings of a node from its three sources. `flags` maps dotted paths to values.

    Raises SettingsError with all problems of all sources; each names the line of the file, the variable or the flag.
    """
    file = document or YamlDocument({}, name="configuration")
    if not isinstance(file.data, dict | None):
        raise SettingsError(file.name, [file.problem((), "should be a group of keys and values")])
    data: Any = _copy(file.data or {})
    origins: dict[str, str] = {}
    for origin, path, value in [*_environment(environment), *_flags(flags)]:
        _put(data, path, value)
        origins[dotted(path)] = origin
    try:
        return load(NodeConfig, YamlDocument(data, file.name, file.lines))
    except SettingsError as error:
        raise SettingsError(file.name, [_named(problem, origins) for problem in error.problems]) from None


def _copy(data: Any) -> Any:
    return {key: _copy(value) for key, value in data.items()} if isinstance(data, dict) else data


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    for name in sorted(environment):
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split(_LEVEL_SEPARATOR))
        if name.startswith(ENVIRONMENT_PREFIX) and len(path) > 1:
            yield f"environment variable {name}", path, _value(environment[name])


def _flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    for name, value in flags.items():
        if value is not None:
            yield f"flag for {name}", tuple(name.split(".")), _value(value)


def _value(value: Any) -> Any:
    return None if value in _NULLS else value


def _put(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        inner = data.get(key)
        if not isinstance(inner, dict):
            inner = data[key] = {}
        data = inner
    data[path[-1]] = value


def _named(problem: Problem, origins: Mapping[str, str]) -> Problem:
    """The problem with the variable or flag that the value came from as its place, where it came from one."""
    inside = f"{problem.where}."
    for path, origin in origins.items():
        if problem.where == path or (path.startswith(inside) and problem.message.startswith("unknown key")):
            return Problem(origin, None, problem.message)
    return problem
