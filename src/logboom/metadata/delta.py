"""What a sequence of records changes: the image before, the image after, and the streams that differ.

A broker does not compare whole images: it gets the delta of each commit and makes its own state follow (opens new
partitions, reconfigures, drops). Kafka's name for it is MetadataDelta.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logboom.base.ids import StreamId
from logboom.metadata.image import Image, Stream, apply_all
from logboom.metadata.records import (
    BrokerConfigChanged,
    BrokerRegistered,
    ClientQuotasChanged,
    MetadataRecord,
    PartitionsAdded,
    PartitionsChanged,
    PartitionsPlaced,
    SnapshotBegun,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
)


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """One step from an image to a later one. Streams are listed in the order in which the records name them."""

    before: Image
    after: Image
    grown: tuple[tuple[Stream, range], ...]
    """Streams with partitions that `before` does not have, new streams included: as they are after, and the indexes of
    those partitions."""
    reconfigured: tuple[Stream, ...]
    """Streams that were there before and whose number of partitions or settings changed, as they are after."""
    deleted: tuple[Stream, ...]
    """Streams that are gone, as they were before."""
    reassigned: tuple[Stream, ...]
    """Streams that were there before and of which at least one partition has another assignment (replicas, ISR, leader,
    an epoch), as they are after."""

    quotas_changed: bool
    """Whether any client quota may differ."""
    broker_configs_changed: bool
    """Whether any setting that brokers were given at run time may differ."""


def delta_of(before: Image, records: Sequence[MetadataRecord]) -> ImageDelta:
    """The delta that committing `records` makes. The search for changed streams costs one step per record."""
    after = apply_all(before, records)
    grown: list[tuple[Stream, range]] = []
    reconfigured: list[Stream] = []
    deleted: list[Stream] = []
    reassigned: list[Stream] = []
    for stream_id in dict.fromkeys(_named(before, after, records)):
        old, new = before.by_id.get(stream_id), after.by_id.get(stream_id)
        if new is None:
            if old is not None:  # else created and deleted by the same records
                deleted.append(old)
            continue
        known = 0 if old is None else old.partitions
        if new.partitions > known:
            grown.append((new, range(known, new.partitions)))
        if old is None:
            continue
        if (new.partitions, new.overrides) != (old.partitions, old.overrides):
            reconfigured.append(new)
        if new.assignments != old.assignments:
            reassigned.append(new)
    return ImageDelta(
        before=before,
        after=after,
        grown=tuple(grown),
        reconfigured=tuple(reconfigured),
        deleted=tuple(deleted),
        reassigned=tuple(reassigned),
        quotas_changed=any(isinstance(record, ClientQuotasChanged | SnapshotBegun) for record in records),
        broker_configs_changed=any(isinstance(record, BrokerConfigChanged | SnapshotBegun) for record in records),
    )


def _named(before: Image, after: Image, records: Iterable[MetadataRecord]) -> Iterable[StreamId]:
    """Ids of all streams that the records may have changed."""
    for record in records:
        match record:
            case (
                StreamCreated()
                | PartitionsAdded()
                | PartitionsPlaced()
                | PartitionsChanged()
                | StreamConfigChanged()
                | StreamDeleted()
            ):
                yield record.id
            case BrokerRegistered():  # raises the leader epochs of all that it leads
                yield from (
                    stream.id for stream in before if any(one.leader == record.id for one in stream.assignments)
                )
            case SnapshotBegun():  # replaces the whole image
                yield from before.by_id
                yield from after.by_id
