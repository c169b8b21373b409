"""What a stream's settings say of NATS."""

from typing import Final, NamedTuple

from logboom.metadata import Stream, StreamConfig
from logboom.metadata.attachment import PartitionerKind, is_attached, read_partitioner

_DEFAULTS: Final = StreamConfig()


class Attachment(NamedTuple):
    """The settings `logboom.nats.*` of a stream that has subjects."""

    subjects: tuple[str, ...]
    group: str | None
    ack: str
    key: str
    is_round_robin: bool
    """Whether any partition will do for a message."""
    chosen_by: str
    """What the partition of a message hangs on: the partitioner, and where it goes by a key, where that comes from."""


def attachment_of(stream: Stream) -> Attachment | None:
    """How a stream is attached to NATS; None where it is not."""
    if stream.internal or not is_attached(stream.overrides):
        return None
    settings = stream.config_over(_DEFAULTS)
    partitioner = read_partitioner(settings.nats_partitioner)
    by_key = partitioner.kind is PartitionerKind.KEY or (
        partitioner.kind is PartitionerKind.RANGE and not partitioner.tokens
    )
    return Attachment(
        tuple(settings.nats_subjects.split(",")),
        settings.nats_group or None,
        settings.nats_ack,
        settings.nats_key,
        partitioner.kind is PartitionerKind.ROUND_ROBIN,
        f"{settings.nats_partitioner} {settings.nats_key}" if by_key else settings.nats_partitioner,
    )
