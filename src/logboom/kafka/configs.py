"""Settings as DescribeConfigs and CreateTopics tell of them: value, type, where it comes from, what it means.

It reads the broker's table of stream settings and the models of its own configuration, and can change none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from logboom.metadata import STREAM_SETTINGS, Stream

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.kafka.shared import Shared


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


_BOOLEAN: Final = 1
_STRING: Final = 2
_LONG: Final = 5
_DOUBLE: Final = 6
_TYPES: Final[dict[type, int]] = {bool: _BOOLEAN, int: _LONG, float: _DOUBLE}


@dataclass(frozen=True, slots=True)
class Described:
    """One setting."""

    name: str
    value: str | None
    type: int
    source: Source
    read_only: bool
    documentation: str
    synonyms: tuple[tuple[str, str | None, Source], ...]
    """Every value it could have, the one in force first: (name, value, source)."""


def describe_stream(broker: Broker, stream: Stream) -> Iterator[Described]:
    """A stream's settings: its own over the broker's over the table's."""
    defaults = broker.config.stream_defaults
    broker_config = defaults.as_stream_config()
    for setting in STREAM_SETTINGS:
        synonyms = []
        if setting.name in stream.overrides:
            synonyms.append((setting.name, stream.overrides[setting.name], Source.DYNAMIC_TOPIC))
        kept_by_itself = stream.internal and setting.field.startswith("retention_")
        if setting.field in defaults.model_fields_set and not kept_by_itself:
            name = f"broker.stream_defaults.{setting.field}"
            synonyms.append((name, setting.text(broker_config), Source.STATIC_BROKER))
        synonyms.append((setting.name, setting.default, Source.DEFAULT))
        yield Described(
            name=setting.name,
            value=setting.text(stream.config),
            type=setting.type,
            source=synonyms[0][2],
            read_only=False,
            documentation=setting.doc,
            synonyms=tuple(synonyms),
        )


def describe_broker(shared: Shared) -> Iterator[Described]:
    """What this broker and its Kafka door run under; set at the start, so read-only."""
    yield from _settings("broker", shared.broker.config)
    yield from _settings("kafka", shared.config)


def _settings(prefix: str, model: BaseModel) -> Iterator[Described]:
    for field, info in type(model).model_fields.items():
        value, name = getattr(model, field), f"{prefix}.{field}"
        if isinstance(value, BaseModel):
            yield from _settings(name, value)
            continue
        synonyms = [(name, _text(value), Source.STATIC_BROKER)] if field in model.model_fields_set else []
        if not info.is_required():
            synonyms.append((name, _text(info.get_default(call_default_factory=True)), Source.DEFAULT))
        yield Described(
            name=name,
            value=_text(value),
            type=_TYPES.get(type(value), _STRING),
            source=synonyms[0][2],
            read_only=True,
            documentation=" ".join((info.description or "").split()),
            synonyms=tuple(synonyms),
        )


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
