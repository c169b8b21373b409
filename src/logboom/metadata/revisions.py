"""Which entry of the metadata log changed an object of the image last, like etcd's `mod_revision` of a key.

The sender of a change names the entry up to which it knows the metadata. The controller compares: if another change of
the same object came since, nothing is changed (`ModRevisions.check`). A change that the network delivers late, or a
second time, therefore never undoes a later one.

Objects are things that people change independently of each other: the settings of a stream, the quotas of a client, the
replicas of a partition. ISRs, which brokers change all the time, are not among them; proposals of ISRs are compared by
their own epochs (`leadership`).

No record holds a revision. Each broker keeps the revisions of the entries that it applies, the latest ones, and the
entry from which on they are complete: after a snapshot, or after the oldest were dropped because there were too many. A
command from before that entry is refused too.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from logboom.base.errors import ConcurrentChangeError, InvalidRequestError
from logboom.metadata.assignment import PartitionChange
from logboom.metadata.records import (
    BrokerChanged,
    BrokerConfigChanged,
    BrokerUnregistered,
    ClientQuotasChanged,
    MetadataLevelSet,
    MetadataRecord,
    PartitionsAdded,
    PartitionsChanged,
    SnapshotBegun,
    StreamConfigChanged,
    StreamCreated,
    StreamDeleted,
)

Object: TypeAlias = tuple[Hashable, ...]
"""Its kind, then what tells it from others of that kind."""

KEPT_MAX: Final = 20_000
"""Objects whose last change is remembered, some 100 bytes each: of 10,000 partitions leader and replicas."""


class ModRevisions:
    """See the module. A part of the state of each broker, kept beside the image."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._changed_at: dict[Object, int] = {}
        """The one that changed longest ago first."""
        self._complete_from = self._last = 0

    def note(self, index: int, records: Iterable[MetadataRecord]) -> None:
        """The entry `index`, the next one, has these records."""
        for record in records:
            if isinstance(record, SnapshotBegun):
                self.restored(index)
            for changed in _changed_by(record):
                self._changed_at.pop(changed, None)
                self._changed_at[changed] = index
        self._last = index
        self._forget(len(self._changed_at) - self._kept_max)

    def restored(self, index: int) -> None:
        """A snapshot of the image took the place of all entries up to `index`."""
        self._changed_at.clear()
        self._complete_from = self._last = index

    def check(self, records: Sequence[MetadataRecord], revision: int) -> None:
        """Raises ConcurrentChangeError if these records change something that an entry behind `revision` has changed
        already, or may have; InvalidRequestError if there is no such entry yet."""
        if revision > self._last:
            raise InvalidRequestError(
                f"the command names entry {revision} of the metadata log, whose last one is {self._last}"
            )
        if records and revision < self._complete_from:
            raise ConcurrentChangeError(
                f"the command is of entry {revision} of the metadata log, and what has changed between that and entry "
                f"{self._complete_from} is not known any more: nothing was changed"
            )
        for one in {found: None for record in records for found in _compared(record)}:
            changed_at = self._changed_at.get(one, 0)
            if changed_at > revision:
                raise ConcurrentChangeError(
                    f"{' '.join(map(str, one))}: changed by entry {changed_at} of the metadata log, since the command "
                    f"was made (entry {revision}): nothing was changed"
                )

    def _forget(self, count: int) -> None:
        for one in list(islice(self._changed_at, max(count, 0))):
            self._complete_from = self._changed_at.pop(one)


def _changed_by(record: MetadataRecord) -> Iterator[Object]:
    match record:
        case PartitionsChanged():
            for change in record.changes:
                if change.leader is not None:
                    yield ("leader of", record.id, change.index)
                if _moves(change):
                    yield ("replicas of", record.id, change.index)
        case StreamCreated():
            yield ("stream", record.id)
        case StreamConfigChanged():
            yield ("settings of", record.id)
        case PartitionsAdded():
            yield ("partitions of", record.id)
        case ClientQuotasChanged():
            yield ("quotas of", *sorted(f"{kind}={name}" for kind, name in record.entity.items()))
        case MetadataLevelSet():
            yield ("the metadata level",)
        case _:
            yield from _changed_of_broker(record)


def _changed_of_broker(record: MetadataRecord) -> Iterator[Object]:
    match record:
        case BrokerConfigChanged():
            yield ("settings of broker", record.broker)
        case BrokerChanged(draining=bool()):
            yield ("draining of broker", record.id)
        case BrokerUnregistered():
            yield ("broker", record.id)
        case _:
            return


def _compared(record: MetadataRecord) -> Iterator[Object]:
    """What a record changes, and what it is a part of: a stream of the same name that was made since is another one, as
    is a broker that has the id of one that was removed."""
    yield from _changed_by(record)
    match record:
        case PartitionsChanged() | StreamConfigChanged() | PartitionsAdded() | StreamDeleted():
            yield ("stream", record.id)
        case BrokerChanged():
            yield ("broker", record.id)
        case _:
            return


def _moves(change: PartitionChange) -> bool:
    return change.replicas is not None or change.adding is not None or change.removing is not None
