"""Counting the error codes of a response, at its top level and in every nested entity.

Compiled from kio's schema, one function per entity class, as readers and writers are. Knows no connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from logboom.kafka.wire.schema import Shape, Source, shape_of, split_fields

Count: TypeAlias = Callable[[Any, Counter[str]], None]
_CODE: Final = "error_code"


def count_errors(response: Any, errors: Counter[str]) -> None:
    """Add every error of a response, by Kafka's name."""
    cls: Any = type(response)
    counter_for(cls)(response, errors)


@cache
def counter_for(cls: Any) -> Count:
    """The function for one entity class, compiled on first use."""
    source = Source()
    source.emit("pass")
    _entity(source, cls, "entity")
    count: Count = source.build("count(entity, errors)", f"<error counter of {cls.__module__}.{cls.__name__}>")
    return count


@cache
def _has_codes(cls: Any) -> bool:
    shapes = [shape_of(field) for part in split_fields(cls) for field in part]
    return any(shape.kafka_type == _CODE or (shape.entity is not None and _has_codes(shape.entity)) for shape in shapes)


def _entity(source: Source, cls: Any, value: str) -> None:
    for field in (field for part in split_fields(cls) for field in part):
        _value(source, shape_of(field), f"{value}.{field.name}")


def _value(source: Source, shape: Shape, value: str) -> None:
    if shape.entity is not None and not _has_codes(shape.entity):
        return
    if shape.array:
        item = source.name("item")
        with source.block(f"for {item} in {value} or ():"):
            source.emit("pass")
            _value(source, shape.item, item)
    elif shape.entity is not None:
        with source.block(f"if {value} is not None:"):
            source.emit("pass")
            _entity(source, shape.entity, value)
    elif shape.kafka_type == _CODE:
        with source.block(f"if {value}:"):
            source.emit(f"errors[{value}.name] += 1")
