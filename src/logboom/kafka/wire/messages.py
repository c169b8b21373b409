"""Building kio's entities without a branch per version.

A handler names every field that some version of the response has, and `make` drops those that the version at hand does
not have. Knows kio's schema; no connection and no broker.
"""

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

E = TypeVar("E")

_Kind: TypeAlias = Literal[EntityType.request, EntityType.response]
_KINDS: dict[str, _Kind] = {"request": EntityType.request, "response": EntityType.response}


@cache
def request_class(api_key: int, version: int) -> Any:
    """The request class of an API at a version. Raises kio's KioIndexError where it knows none."""
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> Any:
    """The response class of an API at a version. Raises kio's KioIndexError where it knows none."""
    return load_response_schema(api_key, version)


@cache
def field_names(cls: Any) -> frozenset[str]:
    """The fields this version of an entity class has."""
    return frozenset(field.name for field in dataclasses.fields(cls))


@cache
def nested(cls: Any, *path: str) -> Any:
    """The class of a nested entity: `nested(MetadataResponse, "topics", "partitions")`."""
    for name in path:
        field = next(field for field in dataclasses.fields(cls) if field.name == name)
        cls = next(leaf for leaf in _leaves(field.type) if dataclasses.is_dataclass(leaf))
    return cls


def make(cls: type[E], /, **fields: object) -> E:
    """An entity of any version. Fields that only other versions have are dropped; a name that no version has is a
    TypeError."""
    entity: Any = cls  # as Any, because lru_cache wants hashable arguments
    known = field_names(entity)
    if not known.issuperset(fields):
        for name in fields.keys() - known:
            _assert_some_version_has(entity, name)
        fields = {name: value for name, value in fields.items() if name in known}
    return cls(**fields)


def milliseconds(value: int) -> timedelta:
    """A duration as kio's entities carry it."""
    return timedelta(milliseconds=value)


def as_milliseconds(value: timedelta) -> int:
    """The inverse of `milliseconds`, exact."""
    return (value.days * 86_400 + value.seconds) * 1_000 + value.microseconds // 1_000


def _leaves(annotation: Any) -> Iterator[type[Any]]:
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for argument in inner:
        yield from _leaves(argument)


@cache
def _assert_some_version_has(cls: Any, name: str) -> None:
    """Raise TypeError where no version of the entity has the field: then the name is misspelt.

    Newest first, which have most fields that a version lacks: each version's module takes milliseconds to load.
    """
    kind = _KINDS[cls.__module__.rpartition(".")[2]]
    api_key = cls.__api_key__
    for version in sorted(schema_name_map[api_key_map[api_key]], reverse=True):
        # Kafka renames nested entities now and then, so every entity of the message counts.
        for other in vars(load_payload_module(api_key, version, kind)).values():
            if dataclasses.is_dataclass(other) and isinstance(other, type) and name in field_names(other):
                return
    raise TypeError(f"no version of {cls.__name__} has a field {name!r}")
