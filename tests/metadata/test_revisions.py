"""Which entry changed what last, and which commands are too late for it."""

from uuid import UUID

import pytest

from logboom.base.errors import ConcurrentChangeError, InvalidRequestError
from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId, StreamId, StreamName
from logboom.metadata.assignment import PartitionChange
from logboom.metadata.records import (
    BrokerChanged,
    BrokerConfigChanged,
    BrokerRegistered,
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
from logboom.metadata.revisions import ModRevisions

ORDERS, BILLS = StreamId(UUID(int=1)), StreamId(UUID(int=2))
ONE, TWO = BrokerId(1), BrokerId(2)


def of_partition(index: int = 0, stream: StreamId = ORDERS, **fields: object) -> PartitionsChanged:
    return PartitionsChanged(id=stream, changes=(PartitionChange(index=index, **fields),))  # type: ignore[arg-type]


def created(stream: StreamId) -> StreamCreated:
    return StreamCreated(name=StreamName("s"), id=stream, partitions=1, config={})


def settings(stream: StreamId = ORDERS, **config: str) -> StreamConfigChanged:
    return StreamConfigChanged(id=stream, config=config)


def quotas(client: str) -> ClientQuotasChanged:
    return ClientQuotasChanged(entity={"client-id": client, "user": None}, quotas={"producer_byte_rate": 1.0})


MOVED = of_partition(replicas=(ONE, TWO), adding=(TWO,))
LED = of_partition(leader=TWO)
DRAINED = BrokerChanged(id=ONE, draining=True)
GONE = BrokerUnregistered(id=ONE)


def is_late(revisions: ModRevisions, record: MetadataRecord, revision: int) -> bool:
    try:
        revisions.check([record], revision)
    except ConcurrentChangeError:
        return True
    return False


@pytest.mark.parametrize(
    ("earlier", "record"),
    [
        (settings(), settings()),
        (BrokerConfigChanged(broker="", config={}), BrokerConfigChanged(broker="", config={"a": "b"})),
        (quotas("a"), quotas("a")),
        (MOVED, of_partition(removing=(TWO,))),
        (LED, LED),
        (DRAINED, BrokerChanged(id=ONE, draining=False)),
        (GONE, GONE),
        (GONE, DRAINED),
        (MetadataLevelSet(level=3), MetadataLevelSet(level=2)),
        (PartitionsAdded(id=ORDERS, total=2), PartitionsAdded(id=ORDERS, total=3)),
        (created(ORDERS), settings()),
        (created(ORDERS), PartitionsAdded(id=ORDERS, total=3)),
        (created(ORDERS), StreamDeleted(id=ORDERS)),
        (created(ORDERS), MOVED),
    ],
)
def test_what_was_changed_since_is_late(earlier: MetadataRecord, record: MetadataRecord) -> None:
    revisions = ModRevisions()
    revisions.note(7, [earlier])
    revisions.note(8, [])
    assert is_late(revisions, record, 6)
    assert not is_late(revisions, record, 7)


@pytest.mark.parametrize(
    ("earlier", "record"),
    [
        (settings(BILLS), settings()),
        (BrokerConfigChanged(broker="1", config={}), BrokerConfigChanged(broker="", config={})),
        (quotas("b"), quotas("a")),
        (of_partition(1, replicas=(ONE,)), MOVED),
        (of_partition(isr=(ONE,)), MOVED),
        (LED, MOVED),
        (BrokerChanged(id=ONE, fenced=True), DRAINED),
        (BrokerUnregistered(id=TWO), GONE),
        (settings(), StreamDeleted(id=ORDERS)),
        (settings(), MOVED),
        (
            BrokerRegistered(
                id=ONE, epoch=BrokerEpoch(1), directory_id=DirectoryId("d"), incarnation="i", listeners={}
            ),
            DRAINED,
        ),
    ],
)
def test_changes_of_different_things_are_not_in_each_others_way(
    earlier: MetadataRecord, record: MetadataRecord
) -> None:
    revisions = ModRevisions()
    revisions.note(7, [earlier])
    assert not is_late(revisions, record, 6)


def test_what_a_snapshot_hides_counts_as_changed() -> None:
    revisions = ModRevisions()
    revisions.restored(7)
    assert is_late(revisions, settings(), 6)
    assert not is_late(revisions, settings(), 7)
    revisions.check([], 6)  # nothing would be changed


def test_a_snapshot_in_an_entry_hides_what_was_before_it() -> None:
    revisions = ModRevisions()
    revisions.note(7, [SnapshotBegun(), created(ORDERS)])
    assert is_late(revisions, settings(BILLS), 6)
    assert not is_late(revisions, settings(BILLS), 7)


def test_as_many_changes_as_are_remembered_and_no_more() -> None:
    """What is forgotten counts as changed by the last one that is."""
    revisions = ModRevisions(kept_max=3)
    for index in range(1, 6):
        revisions.note(index, [quotas(str(index))])
    revisions.note(6, [quotas("4")])
    assert is_late(revisions, settings(), 1)
    assert not is_late(revisions, settings(), 2)
    assert is_late(revisions, quotas("3"), 2)
    assert is_late(revisions, quotas("4"), 5)
    assert not is_late(revisions, quotas("3"), 3)
    revisions.note(7, [quotas(str(index)) for index in range(100)])
    assert is_late(revisions, settings(), 6)
    assert not is_late(revisions, settings(), 7)


def test_a_revision_that_is_yet_to_come_is_a_lie() -> None:
    revisions = ModRevisions()
    revisions.note(7, [settings()])
    with pytest.raises(InvalidRequestError, match="names entry 8 of the metadata log, whose last one is 7"):
        revisions.check([settings()], 8)
