"""The metadata level of a cluster: which versions of records are written, so that every broker can read them.

While a cluster is being updated its brokers run two programs. A record that the older one cannot read would stop it, so
a new version of a record is written only from some level on. An operator raises the level (KIP-584, KIP-778), and only
once every broker supports it. A program supports a range of levels. A new cluster begins at the newest one.

    1   what programs wrote and read before there were levels
    2   the level itself, and the range of levels of each broker
    3   messages between brokers that earlier programs do not know, and that would end their connection: the request of
        a leader to the previous one (HANDOVER), advisories for the leader of their stream (ADVISORIES), and a command
        that creates many streams

A program that adds a version of a record adds a level here and says in `LEVEL_OF` which version needs it. A program
that adds a kind of message between brokers adds a level too, and sends none below it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from logboom.base.errors import InvalidUpdateVersionError, UnsupportedLevelError
from logboom.base.ids import BrokerId
from logboom.metadata.image import Image
from logboom.metadata.records import LEVEL_NEWEST, LEVEL_OLDEST, MetadataLevelSet, MetadataRecord, level_of

FEATURE: Final = "logboom.metadata.version"
"""The name under which Kafka's tools know the level."""


class Levels(NamedTuple):
    """The levels that a program speaks."""

    oldest: int
    newest: int


OWN_LEVELS: Final = Levels(LEVEL_OLDEST, LEVEL_NEWEST)
HANDOVER_FROM: Final = 3
"""From this level on leaders ask those before them for messages that they could not store."""
CREATE_STREAMS_FROM: Final = 3
"""From this level on streams that a client creates together are one command."""
ADVISORIES_FROM: Final = 3
"""From this level on brokers send advisories to other brokers."""


def check_speaks(image: Image, broker: BrokerId, software: str, levels: Levels) -> None:
    """Raises UnsupportedLevelError if a program cannot be part of the cluster as it is."""
    program = f"the program of broker {broker} (Logboom {software or 'of an unknown version'})"
    spoken = f"speaks levels {levels.oldest} to {levels.newest}"
    if levels.newest < image.level:
        raise UnsupportedLevelError(
            f"the cluster is at metadata level {image.level}, and {program} {spoken}: start a newer one"
        )
    if levels.oldest > image.level:
        raise UnsupportedLevelError(
            f"the cluster is at metadata level {image.level}, and {program} {spoken}: start an older one, and raise "
            "the level first (logboom cluster upgrade)"
        )


def set_level(
    image: Image, level: int, *, may_lower: bool, told: Mapping[BrokerId, Levels]
) -> tuple[MetadataLevelSet, ...]:
    """Raise the level of the cluster, or lower it as far as nothing is lost. `told`: what running brokers speak.

    Raises InvalidUpdateVersionError if some broker does not speak it, or is not known to.
    """
    if level == image.level:
        return ()
    if not OWN_LEVELS.oldest <= level <= OWN_LEVELS.newest:
        raise InvalidUpdateVersionError(
            f"the controller speaks metadata levels {OWN_LEVELS.oldest} to {OWN_LEVELS.newest}, not {level}"
        )
    if level < image.level:
        _check_lower(image, level, may_lower=may_lower)
    for broker in image.brokers.values():
        levels = told.get(broker.id, None if broker.levels is None else Levels(*broker.levels))
        if levels is None:
            raise InvalidUpdateVersionError(
                f"which metadata levels broker {broker.id} speaks is not known: it is down, or its program (Logboom "
                f"{broker.software}) is too old. Start it with a newer one, or remove it from the cluster"
            )
        if not levels.oldest <= level <= levels.newest:
            raise InvalidUpdateVersionError(
                f"broker {broker.id} (Logboom {broker.software}) speaks metadata levels {levels.oldest} to "
                f"{levels.newest}, not {level}: update all brokers first"
            )
    return (MetadataLevelSet(level=level),)


def _check_lower(image: Image, level: int, *, may_lower: bool) -> None:
    if not may_lower:
        raise InvalidUpdateVersionError(f"the cluster is at metadata level {image.level}; {level} would be a downgrade")
    needed = max(map(level_of, image.snapshot()))
    if level < needed:
        raise InvalidUpdateVersionError(
            f"the metadata hold records of level {needed}, which programs of level {level} cannot read"
        )


def check_written(image: Image, records: tuple[MetadataRecord, ...]) -> None:
    """A record of a version that the cluster's level does not allow is an error of this program."""
    level = image.level
    for record in records:
        if isinstance(record, MetadataLevelSet):
            level = max(level, record.level)
        assert level_of(record) <= level, f"a {type(record).__name__} of version {record.version} at level {level}"
