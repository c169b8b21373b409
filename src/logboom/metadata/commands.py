"""Commands on the metadata: each reads the image and returns the records of the change, or raises one typed error.

Nothing changes until the records are committed and applied to the image. Random values are arguments. Whether a client
is allowed to send the command is decided by the caller.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from logboom.base.errors import (
    InvalidAssignmentError,
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
from logboom.metadata.assignment import Assignment, Replicas
from logboom.metadata.attachment import attachment_fault
from logboom.metadata.image import Image, Stream
from logboom.metadata.limits import MetadataLimits
from logboom.metadata.named_settings import THROTTLED_REPLICAS
from logboom.metadata.observers import OBSERVERS, check_enough, choose, copies
from logboom.metadata.placement import Load, place, start
from logboom.metadata.reassignment import check_replicas
from logboom.metadata.records import (
    BrokerConfigChanged,
    PartitionsAdded,
    Placed,
    ProducerIdsAllocated,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
    observed,
)
from logboom.metadata.setting_values import INT64_MAX
from logboom.metadata.stream_config import (
    DEFAULT_STREAM_CONFIG,
    FAULTS_MAX,
    MINIMUM,
    minimum_fault,
    stream_setting,
)

NAME_LENGTH_MAX: Final = 249
"""Kafka's limit: with `-` and a partition index of five digits the name fits in a file name of 255 bytes."""
_INTERNAL_NAMES: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__advisories"}
)
"""Kafka's internal topics, and one of Logboom. Other names that start with `__` are for clients, such as those of
Debezium's heartbeats."""
_INTERNAL_PREFIX: Final = "__logboom"
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class CreateStream:
    """The arguments of `create_stream`. A client's request never sets `internal`."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str | None]
    """Settings by Kafka's names; None is the default, as if the setting were absent."""
    internal: bool = False
    assignments: Sequence[Sequence[int]] | None = None
    """The replicas of each partition, the preferred leader first; None has them chosen (`placement`)."""
    observers: int = 0
    """How many observers each partition gets: the setting in force for the stream."""


def check_name(name: str, *, internal: bool = False) -> StreamName:
    """Check a name by Kafka's rules (`Topic.validate`). Raises InvalidStreamNameError."""
    if not name:
        raise InvalidStreamNameError("a stream needs a name")
    if name in (".", ".."):
        raise InvalidStreamNameError(f"a stream cannot be named {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidStreamNameError(f"the name is {len(name)} characters long, at most {NAME_LENGTH_MAX} are allowed")
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidStreamNameError(f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'")
    if not internal and (name in _INTERNAL_NAMES or name.startswith(_INTERNAL_PREFIX)):
        raise InvalidStreamNameError(f"{name!r} is one of Logboom's own names")
    return StreamName(name)


def create_stream(
    image: Image, command: CreateStream, stream_id: StreamId, limits: MetadataLimits
) -> tuple[StreamCreated]:
    """Create a stream. `stream_id` must be new and random.

    Raises StreamExistsError, InvalidStreamNameError, InvalidPartitionsError, InvalidReplicationFactorError,
    InvalidConfigError, or PolicyViolationError if a limit is reached.
    """
    name = check_name(command.name, internal=command.internal)
    if name in image.by_name:
        raise StreamExistsError(f"the stream {name} exists")
    _check_collision(image, name)
    if command.partitions < 1:
        raise InvalidPartitionsError(f"a stream has at least 1 partition, not {command.partitions}")
    if len(image.by_name) >= limits.streams_max:
        raise PolicyViolationError(
            f"one more stream is too many: there are {len(image.by_name)} and max_streams is {limits.streams_max}",
            limit="broker.max_streams",
        )
    _check_room(image, command.partitions, limits)
    overrides = {key: value for key, value in command.config.items() if value is not None}
    _check_config(image, command.config)
    _check_together(overrides, command.partitions)
    placed = _placed(image, command.assignments, command.partitions, command.replication_factor, stream_id.int)
    if not command.internal:
        _check_minimum(overrides, len(placed[0].replicas) if placed else 1)
    placed = _with_observers(image, placed, command.observers)
    if (wanted := overrides.get(OBSERVERS)) is not None:
        check_enough(wanted, placed, image.brokers)
    return (
        StreamCreated(
            name=name,
            id=stream_id,
            partitions=command.partitions,
            config=overrides,
            internal=command.internal,
            placed=tuple(map(Placed.of, placed)),
            **observed(placed),
        ),
    )


def add_partitions(
    image: Image,
    name: str,
    total: int,
    limits: MetadataLimits,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    observers: int = 0,
) -> tuple[PartitionsAdded]:
    """Grow a stream to `total` partitions, with as many replicas each as the first one has, or is going to have.
    `assignments`: the replicas of the new ones. `observers`: how many each gets, as far as there are brokers.

    Raises UnknownStreamError, InvalidPartitionsError, PolicyViolationError, InvalidAssignmentError also for fewer
    replicas than `min.insync.replicas`, InvalidReplicationFactorError, or InvalidRequestError for an internal stream.
    """
    stream = _existing(image, name)
    _check_not_internal(stream)
    if total <= stream.partitions:
        raise InvalidPartitionsError(
            f"the stream {name} has {stream.partitions} partitions; it can only grow, not to {total}"
        )
    _check_together(stream.overrides, total)
    more = total - stream.partitions
    _check_room(image, more, limits)
    placed: tuple[Assignment, ...] = ()
    if stream.assignments:
        factor = len(stream.assignments[0].target)
        placed = _placed(image, assignments, more, factor, stream.id.int + stream.partitions, stream.assignments)
        fault = minimum_fault(stream.overrides, len(placed[0].replicas))
        if fault is not None:
            raise InvalidAssignmentError(fault)
        placed = _with_observers(image, placed, observers)
    return (PartitionsAdded(id=stream.id, total=total, placed=tuple(map(Placed.of, placed)), **observed(placed)),)


def change_config(
    image: Image,
    name: str,
    changes: Mapping[str, str | None],
    *,
    replace_all: bool = False,
    internal: bool = False,
) -> tuple[StreamConfigChanged, ...]:
    """Set some settings of a stream, or with None reset them to their defaults; no record where nothing changes.

    With `replace_all` all other settings are reset too; `internal` is for the broker itself. Raises
    UnknownStreamError, InvalidConfigError, or InvalidRequestError for an internal stream that a client would change,
    but for the throttle of its replicas, which move with all others.
    """
    stream = _existing(image, name)
    if stream.internal and not internal and (replace_all or not changes.keys() <= THROTTLED_REPLICAS):
        raise InvalidRequestError(f"{stream.name} is internal: clients do not change its settings")
    _check_config(image, changes)
    merged: dict[str, str | None] = {**({} if replace_all else stream.overrides), **changes}
    config = {key: value for key, value in merged.items() if value is not None}
    _check_together(config, stream.partitions)
    if config.get(MINIMUM) != stream.overrides.get(MINIMUM):
        _check_minimum(config, min((len(one.target) for one in stream.assignments), default=1))
    return () if config == stream.overrides else (StreamConfigChanged(id=stream.id, config=config),)


def change_broker_config(
    image: Image, broker: str, changes: Mapping[str, str | None], *, replace_all: bool = False
) -> tuple[BrokerConfigChanged, ...]:
    """As `change_config`, for one broker, or under an empty name for all. The caller has checked the settings."""
    before = image.broker_configs.get(broker, {})
    merged: dict[str, str | None] = {**({} if replace_all else before), **changes}
    config = {key: value for key, value in merged.items() if value is not None}
    return () if config == before else (BrokerConfigChanged(broker=broker, config=config),)


def delete_stream(image: Image, name: str, stream_id: StreamId | None = None) -> tuple[StreamDeleted]:
    """Delete a stream; with an id, only the one that has it. Raises UnknownStreamError, or InvalidRequestError for an
    internal stream."""
    stream = _existing(image, name)
    if stream_id is not None and stream.id != stream_id:
        raise UnknownStreamError(f"the stream {name!r} was deleted, and another one has its name")
    _check_not_internal(stream)
    return (StreamDeleted(id=stream.id),)


def allocate_producer_ids(image: Image, count: int) -> tuple[ProducerIdsAllocated]:
    """Allocate `count` producer ids, from `image.next_producer_id` on (KIP-730)."""
    assert count > 0
    next_id = ProducerId(image.next_producer_id + count)
    if next_id > INT64_MAX:
        raise PolicyViolationError("all producer ids are allocated")
    return (ProducerIdsAllocated(next_id=next_id),)


def check_client_may_write(stream: Stream) -> None:
    """Raises InvalidStreamNameError for an internal stream: clients read it, and neither append to it nor delete its
    records. Kafka answers the same error."""
    if stream.internal:
        raise InvalidStreamNameError(f"{stream.name} is internal: clients cannot change its records")


def _placed(
    image: Image,
    assignments: Sequence[Sequence[int]] | None,
    partitions: int,
    replication_factor: int,
    first: int,
    held: Sequence[Assignment] = (),
) -> tuple[Assignment, ...]:
    """Who holds each new partition of a stream that has those of `held` already; nothing where no broker has registered
    yet, as on a single node before it did."""
    if not image.brokers:
        if replication_factor != 1:
            raise InvalidReplicationFactorError(
                f"a replication factor of {replication_factor} cannot be had with one broker"
            )
        return ()
    if assignments is None:
        load = Load.of(one for stream in image for one in stream.assignments)
        chosen = place(
            image.brokers,
            load,
            partitions=partitions,
            replication_factor=replication_factor,
            first=first,
            own=Load.of(held),
        )
    else:
        chosen = _explicit(image, assignments, partitions)
    placed = tuple(start(replicas, image.brokers) for replicas in chosen)
    asleep = next((one.replicas for one in placed if not one.isr), None)
    if asleep is not None:  # nobody would be in sync with anything, and so nobody ever lead
        why = f"none of brokers {list(asleep)}, which would hold a partition, is active: wait until one is not fenced"
        raise InvalidReplicationFactorError(why) if assignments is None else InvalidAssignmentError(why)
    return placed


def _with_observers(image: Image, placed: tuple[Assignment, ...], observers: int) -> tuple[Assignment, ...]:
    if not observers:
        return placed
    held = copies(image)
    held.update(one for assignment in placed for one in assignment.replicas)
    return tuple(replace(one, observers=choose(image.brokers, held, one.replicas, wanted=observers)) for one in placed)


def _explicit(image: Image, assignments: Sequence[Sequence[int]], partitions: int) -> list[Replicas]:
    """Replicas that a client names. As in Kafka, all partitions have the same number of them."""
    if len(assignments) != partitions:
        raise InvalidAssignmentError(f"{len(assignments)} assignments are given for {partitions} partitions")
    chosen = [check_replicas(image, replicas) for replicas in assignments]
    if len({len(replicas) for replicas in chosen}) > 1:
        raise InvalidAssignmentError("all partitions of a stream have the same number of replicas")
    return chosen


def _existing(image: Image, name: str) -> Stream:
    try:
        return image.by_name[StreamName(name)]
    except KeyError:
        raise UnknownStreamError(f"there is no stream {name!r}") from None


def _check_collision(image: Image, name: StreamName) -> None:
    """Kafka's metric names write `.` as `_`, so Kafka refuses two names that differ in nothing else."""
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in image.by_name:
        if other.replace(".", "_") == folded:
            raise InvalidStreamNameError(f"{name!r} collides with {other!r}: names may not differ only in '.' and '_'")


def _check_room(image: Image, more: int, limits: MetadataLimits) -> None:
    count = image.partition_count
    if count + more > limits.partitions_max:
        raise PolicyViolationError(
            f"{more} more partitions are too many: there are {count} and max_partitions is {limits.partitions_max}",
            limit="broker.max_partitions",
        )


def _check_config(image: Image, changes: Mapping[str, str | None]) -> None:
    """Raise all faults as one error. A name must be known even where its setting is only reset."""
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


def _check_together(overrides: Mapping[str, str], partitions: int) -> None:
    """Raise InvalidConfigError where settings contradict each other, or do not fit this many partitions; those that a
    stream does not set are not known."""
    fault = DEFAULT_STREAM_CONFIG.with_overrides(overrides).fault or attachment_fault(overrides, partitions)
    if fault is not None:
        raise InvalidConfigError(fault)


def _check_minimum(overrides: Mapping[str, str], replicas: int) -> None:
    fault = minimum_fault(overrides, replicas)
    if fault is not None:
        raise InvalidConfigError(fault)


def _check_not_internal(stream: Stream) -> None:
    if stream.internal:
        raise InvalidRequestError(f"{stream.name} is internal: clients neither delete it nor add partitions to it")
