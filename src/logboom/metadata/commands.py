"""What may be asked of the metadata: commands in, records out, or one typed error.

A command only reads the image; state changes when its records are committed and applied. Everything random or timed is
handed in. Which client may ask at all is not known here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logboom.base.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidStreamNameError,
    PolicyViolationError,
    StreamExistsError,
    UnknownStreamError,
)
from logboom.base.ids import ProducerId, StreamId, StreamName
from logboom.metadata.image import Image, Stream
from logboom.metadata.limits import Limits
from logboom.metadata.records import (
    BrokerConfigChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
)
from logboom.metadata.stream_config import FAULTS_MAX, INT64_MAX, stream_setting

NAME_LENGTH_MAX: Final = 249
"""Kafka's: name, `-` and a partition of five digits make a file name of 255."""
INTERNAL_PREFIX: Final = "__"
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class CreateStream:
    """Ask for a stream. `internal` is the node's own word, never a client's."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str | None]
    """Kafka's names; None is the default, as if it were not named."""
    internal: bool = False


def check_name(name: str, *, internal: bool = False) -> StreamName:
    """A name that a stream may have, by Kafka's rules. Raises InvalidStreamNameError."""
    if not name:
        raise InvalidStreamNameError("a stream needs a name")
    if name in (".", ".."):
        raise InvalidStreamNameError(f"a stream cannot be named {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidStreamNameError(f"the name is {len(name)} characters long, at most {NAME_LENGTH_MAX} are allowed")
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidStreamNameError(f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'")
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidStreamNameError(f"names that start with {INTERNAL_PREFIX!r} are Logboom's own, as {name!r} is")
    return StreamName(name)


def create_stream(image: Image, command: CreateStream, stream_id: StreamId, limits: Limits) -> tuple[StreamCreated]:
    """A stream that does not exist yet. `stream_id` is fresh and random."""
    name = check_name(command.name, internal=command.internal)
    if name in image.by_name:
        raise StreamExistsError(f"the stream {name} exists")
    _check_collision(image, name)
    if command.partitions < 1:
        raise InvalidPartitionsError(f"a stream has at least 1 partition, not {command.partitions}")
    if not 1 <= command.replication_factor <= limits.brokers:
        raise InvalidReplicationFactorError(
            f"a replication factor of {command.replication_factor} cannot be had with {limits.brokers} broker"
            + ("s" if limits.brokers > 1 else "")
        )
    if len(image.by_name) >= limits.streams_max:
        raise PolicyViolationError(
            f"one more stream is too many: there are {len(image.by_name)} and max_streams is {limits.streams_max}",
            limit="broker.max_streams",
        )
    _check_room(image, command.partitions, limits)
    overrides = {key: value for key, value in command.config.items() if value is not None}
    _check_config(image, command.config)
    return (
        StreamCreated(
            name=name, id=stream_id, partitions=command.partitions, config=overrides, internal=command.internal
        ),
    )


def add_partitions(image: Image, name: str, total: int, limits: Limits) -> tuple[PartitionsAdded]:
    """More partitions for a stream; `total` counts the old ones too."""
    stream = _existing(image, name)
    _check_not_internal(stream)
    if total <= stream.partitions:
        raise InvalidPartitionsError(
            f"the stream {name} has {stream.partitions} partitions; it can only grow, not to {total}"
        )
    _check_room(image, total - stream.partitions, limits)
    return (PartitionsAdded(id=stream.id, total=total),)


def change_config(
    image: Image, name: str, changes: Mapping[str, str | None], *, replace_all: bool = False
) -> tuple[StreamConfigChanged, ...]:
    """Set (or, with None, give back to the default) some settings of a stream; no record where nothing changes.

    With `replace_all` those that are not named go back to their defaults too.
    """
    stream = _existing(image, name)
    if stream.internal:
        raise InvalidRequestError(f"{stream.name} is Logboom's own and its settings are not changed by clients")
    _check_config(image, changes)
    merged: dict[str, str | None] = {**({} if replace_all else stream.overrides), **changes}
    config = {key: value for key, value in merged.items() if value is not None}
    return () if config == stream.overrides else (StreamConfigChanged(id=stream.id, config=config),)


def change_broker_config(
    image: Image, broker: str, changes: Mapping[str, str | None], *, replace_all: bool = False
) -> tuple[BrokerConfigChanged, ...]:
    """The same for one broker, or under an empty name for all. Which settings there are is not known here."""
    there = image.broker_configs.get(broker, {})
    merged: dict[str, str | None] = {**({} if replace_all else there), **changes}
    config = {key: value for key, value in merged.items() if value is not None}
    return () if config == there else (BrokerConfigChanged(broker=broker, config=config),)


def delete_stream(image: Image, name: str) -> tuple[StreamDeleted]:
    """The end of a stream."""
    stream = _existing(image, name)
    _check_not_internal(stream)
    return (StreamDeleted(id=stream.id),)


def allocate_producer_ids(image: Image, count: int) -> tuple[ProducerIdsAllocated]:
    """A block of producer ids: from `image.next_producer_id`, `count` of them."""
    assert count > 0
    next_id = ProducerId(image.next_producer_id + count)
    if next_id > INT64_MAX:
        raise PolicyViolationError("every producer id there can be has been given away")
    return (ProducerIdsAllocated(next_id=next_id),)


def _existing(image: Image, name: str) -> Stream:
    try:
        return image.by_name[StreamName(name)]
    except KeyError:
        raise UnknownStreamError(f"there is no stream {name!r}") from None


def _check_collision(image: Image, name: StreamName) -> None:
    """Kafka's metric names cannot tell `.` from `_`, so its tools refuse names that differ in nothing else."""
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in image.by_name:
        if other.replace(".", "_") == folded:
            raise InvalidStreamNameError(f"{name!r} collides with {other!r}: names may not differ only in '.' and '_'")


def _check_room(image: Image, more: int, limits: Limits) -> None:
    there = image.partition_count
    if there + more > limits.partitions_max:
        raise PolicyViolationError(
            f"{more} more partitions are too many: there are {there} and max_partitions is {limits.partitions_max}",
            limit="broker.max_partitions",
        )


def _check_config(image: Image, changes: Mapping[str, str | None]) -> None:
    """All faults in one error: names that are unknown even where they are only reset, and values that do not fit."""
    faults: list[str] = []
    for name, value in changes.items():
        try:
            setting = stream_setting(name)
            if value is not None:
                setting.parse(value)
        except InvalidConfigError as error:
            faults.append(str(error))
        if len(faults) == FAULTS_MAX < len(changes):
            faults.append(f"{len(changes)} settings are named, and there are more faults perhaps")
            break
    if faults:
        raise InvalidConfigError("; ".join(faults))


def _check_not_internal(stream: Stream) -> None:
    if stream.internal:
        raise InvalidRequestError(f"{stream.name} is Logboom's own and is neither deleted nor grown by clients")
