"""Settings as DescribeConfigs and CreateTopics describe them: value, type, source, documentation.

Reads the table of stream settings and that of the process's own; changes neither.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from logboom.kafka.admin.draining import DRAINING, DRAINING_DOC, is_draining
from logboom.kafka.admin.fixed_settings import FIXED_SETTINGS
from logboom.metadata import BROKERS_OWN, STREAM_SETTINGS, Stream, StreamSetting

if TYPE_CHECKING:
    from logboom.base.dynamic import DynamicSettings, Entry
    from logboom.broker.broker import Broker


class Source(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


_BOOLEAN: Final = 1
STRING: Final = 2
_LONG: Final = 5
_DOUBLE: Final = 6
_PASSWORD: Final = 9
_TYPES: Final[tuple[tuple[type, int], ...]] = ((bool, _BOOLEAN), (int, _LONG), (float, _DOUBLE))

Synonym = tuple[str, str | None, Source]


@dataclass(frozen=True, slots=True)
class Described:
    """The description of one setting."""

    name: str
    value: str | None
    type: int
    source: Source
    read_only: bool
    sensitive: bool
    documentation: str
    synonyms: tuple[Synonym, ...]
    """(name, value, source) of every layer that has a value, the one in force first."""


def describe_stream(broker: Broker, stream: Stream) -> Iterator[Described]:
    """The settings of a stream: its own value, else the broker's, else the default of the table."""
    below = {
        entry.path[-1]: entry for entry in broker.dynamic_settings.table.values() if "stream_defaults" in entry.path
    }
    config = broker.config.stream_config(stream)
    for setting in STREAM_SETTINGS:
        synonyms: list[Synonym] = []
        if setting.name in stream.overrides:
            synonyms.append((setting.name, stream.overrides[setting.name], Source.DYNAMIC_TOPIC))
        synonyms += _below(broker, stream, setting, below.get(setting.field or ""))
        yield Described(
            name=setting.name,
            value=setting.text_in_force(config, stream.overrides),
            type=setting.type,
            source=synonyms[0][2],
            read_only=stream.internal,
            sensitive=False,
            documentation=setting.doc,
            synonyms=tuple(synonyms),
        )
    if config.compacts:
        yield _compaction_state(broker, stream)


def _compaction_state(broker: Broker, stream: Stream) -> Described:
    """The state of compaction, as read-only settings: people look here, and the protocol has no other place."""
    return Described(
        name="logboom.compaction.state",
        value=broker.cleaner.state.sentence_of(stream.name),
        type=STRING,
        source=Source.DEFAULT,
        read_only=True,
        sensitive=False,
        documentation="How much of the stream's dirtiest partition is not compacted yet, or why it cannot be.",
        synonyms=(),
    )


def _below(broker: Broker, stream: Stream, setting: StreamSetting, entry: Entry | None) -> list[Synonym]:
    """The layers below a stream's own value."""
    kept_by_itself = stream.internal and setting.field in BROKERS_OWN
    if entry is None or kept_by_itself:
        return [(setting.name, setting.default, Source.DEFAULT)]
    return _synonyms(broker.dynamic_settings, entry)


def describe_broker(broker: Broker) -> Iterator[Described]:
    """The settings of this process, and those of Kafka's that have one value here."""
    for entry in broker.dynamic_settings.table.values():
        yield _described(entry, broker.dynamic_settings.value(entry), _synonyms(broker.dynamic_settings, entry))
    for name, fixed in FIXED_SETTINGS.items():
        yield Described(
            name=name,
            value=fixed.value,
            type=_BOOLEAN if fixed.is_boolean else STRING,
            source=Source.DEFAULT,
            read_only=True,
            sensitive=False,
            documentation=fixed.why,
            synonyms=((name, fixed.value, Source.DEFAULT),),
        )
    yield _draining(broker)
    yield _software()


def _software() -> Described:
    """The version of the program, read-only among the settings, since the protocol has no place for it."""
    return Described(
        name="logboom.software.version",
        value=importlib.metadata.version("logboom"),
        type=STRING,
        source=Source.DEFAULT,
        read_only=True,
        sensitive=False,
        documentation="The version of Logboom that the broker runs.",
        synonyms=(),
    )


def _draining(broker: Broker) -> Described:
    value = "true" if is_draining(broker) else "false"
    default = (DRAINING, "false", Source.DEFAULT)
    synonyms = ((DRAINING, value, Source.DYNAMIC_BROKER), default) if value == "true" else (default,)
    return Described(
        name=DRAINING,
        value=value,
        type=_BOOLEAN,
        source=synonyms[0][2],
        read_only=False,
        sensitive=False,
        documentation=DRAINING_DOC,
        synonyms=synonyms,
    )


def describe_all_brokers(broker: Broker) -> Iterator[Described]:
    """The settings that were changed at run time for all brokers, and no others, as in Kafka."""
    for name in sorted(broker.dynamic_settings.shared.keys() & broker.dynamic_settings.table.keys()):
        entry = broker.dynamic_settings.table[name]
        synonyms = [one for one in _synonyms(broker.dynamic_settings, entry) if one[2] is not Source.DYNAMIC_BROKER]
        yield _described(entry, entry.parse(broker.dynamic_settings.shared[name]), synonyms)


def _described(entry: Entry, value: object, synonyms: list[Synonym]) -> Described:
    numbered = next((number for kind, number in _TYPES if kind in entry.kinds), STRING)
    return Described(
        name=entry.name,
        value=entry.text(value),
        type=_PASSWORD if entry.sensitive else _LONG if entry.in_ms else numbered,
        source=synonyms[0][2] if synonyms else Source.DEFAULT,
        read_only=not entry.dynamic,
        sensitive=entry.sensitive,
        documentation=entry.documentation,
        synonyms=tuple(synonyms),
    )


def _synonyms(settings: DynamicSettings, entry: Entry) -> list[Synonym]:
    """The layers that have a value for a setting of the process, the one in force first."""
    synonyms: list[Synonym] = [
        (entry.name, layer[entry.name], source)
        for layer, source in (
            (settings.own, Source.DYNAMIC_BROKER),
            (settings.shared, Source.DYNAMIC_DEFAULT_BROKER),
        )
        if entry.name in layer and entry.dynamic and entry.name not in settings.left_out
    ]
    given, value = settings.started_with(entry)
    if given:
        synonyms.append((entry.name, entry.text(value), Source.STATIC_BROKER))
    if not entry.info.is_required():
        synonyms.append((entry.name, entry.text(entry.default), Source.DEFAULT))
    return synonyms
