"""Recovery of the metadata after the majority of the voters is lost for good: a remaining one founds a new group.

    found     this member becomes the only voter of a new generation of the cluster, with every entry of its copy of the
              log, committed or not: its last entries may be changes whose success was reported to a client
    rejoin    this member forgets the group it was in, to join the new generation with the records that it holds

Changes that the lost majority committed and that never reached this member are lost. So this is done on request alone,
once, on the member whose copy goes furthest. Epochs and producer ids that were given in such changes are not given
again (etcd leaves out revisions in the same way, `etcdutl snapshot restore --bump-revision`). Nor is the copy believed
about which replicas were in sync last: the controller compares the logs of all that are left (`unclean_recovery`).

The generation is part of the name by which brokers know their cluster (`Identity.as_peer`): members of an older
generation, if they ever run again, are refused by those of the new one, and cannot elect a leader with them. Records of
streams are not touched.

The new copy is made beside the old one, which is kept under another name. A crash leaves the old copy, or the new one,
or neither in its place; then the broker does not start, and the same command is given again. The broker is stopped; its
directory is locked.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from logboom.base.errors import InvalidRequestError, StorageError
from logboom.base.ids import NO_BROKER, BrokerEpoch, BrokerId, Epoch, PartitionEpoch, ProducerId
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import METADATA_DIR, DataDir
from logboom.broker.raft.files import RaftFiles, Report
from logboom.broker.raft.migration import GROUP_DIR
from logboom.metadata import (
    Image,
    MetadataRecord,
    ProducerIdsAllocated,
    SnapshotBegun,
    Stream,
    StreamCreated,
    apply_all,
    decode_all,
    encode_all,
)
from logboom.metadata.membership import fence, unregister
from logboom.metadata.records import BrokerRegistered, Placed
from logboom.raft import ConfState, EntryType, HardState, Index, NodeId, Snapshot, Stored, Term

_NEW_DIR: Final = f"{GROUP_DIR}-new"
_BEFORE: Final = f"{GROUP_DIR}-before-"
"""Where copies of groups before are kept, numbered from 1 on."""
_EPOCHS_SKIPPED: Final = 1_000_000
"""More than changes of one leader, or starts of brokers, that a member can have missed. Leader epochs have 31 bits."""
_PRODUCER_IDS_SKIPPED: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Copy:
    """One member's copy of the group's log."""

    image: Image
    """With every entry in it, committed or not."""
    term: Term
    last: Index
    unsure: int
    """Entries that it does not know to be committed."""


def read_copy(disk: Disk, report: Report) -> Copy:
    """What the member in a data directory has. Raises StorageError where there is none, or it is damaged."""
    found = RaftFiles.open(disk, _present(disk), report)
    if found is None:
        raise StorageError(f"there is no copy of the cluster's metadata in {GROUP_DIR}")
    files, stored = found
    files.abandon()
    if stored.snapshot.is_empty:
        raise StorageError("this broker has received nothing from its cluster yet: it can found no new group")
    image = Image()
    if stored.snapshot.data:
        image = apply_all(image, decode_all(stored.snapshot.data))
    behind = [entry for entry in stored.entries if entry.index > stored.snapshot.index]
    for entry in behind:
        if entry.type is EntryType.NORMAL and entry.data:
            image = apply_all(image, decode_all(entry.data))
    last = behind[-1] if behind else stored.snapshot
    unsure = sum(entry.index > stored.hard_state.commit for entry in behind)
    return Copy(image, max(stored.hard_state.term, last.term), last.index, unsure)


def recovered(image: Image, lost: Collection[BrokerId]) -> Image:
    """The image with which a new group begins, where these brokers are lost."""
    return _beyond_what_is_lost(_without_lost(image, lost))


def _without_lost(image: Image, lost: Collection[BrokerId]) -> Image:
    """The image once brokers are gone for good, with their disks: they are in no ISR and no ELR, and not registered.

    They stay among the replicas of their partitions, so that a new broker under such an id gets its records back.
    """
    for broker in lost:
        image = apply_all(image, fence(image, broker, _all_replicas))
        image = apply_all(image, unregister(image, broker, _all_replicas))
    return image


def _beyond_what_is_lost(image: Image) -> Image:
    """The image once no epoch and no producer id in it may be one that the lost majority gave to
    somebody else.

    No clean shutdown that it knows of counts either, since the process may not have been the last of its broker. So
    all replicas that are left, unless none of them was relied on, leave the ISR when they come, and the last one makes
    the controller compare their logs: each waits for all others.
    """
    ids = ProducerIdsAllocated(next_id=ProducerId(image.next_producer_id + _PRODUCER_IDS_SKIPPED))
    return apply_all(Image(), (*map(partial(_later, image), image.snapshot()), ids))


def _later(image: Image, record: MetadataRecord) -> MetadataRecord:
    match record:
        case SnapshotBegun():
            return replace(record, next_broker_epoch=BrokerEpoch(record.next_broker_epoch + _EPOCHS_SKIPPED))
        case BrokerRegistered() if record.id in image.brokers:
            return replace(record, epoch=BrokerEpoch(record.epoch + _EPOCHS_SKIPPED))
        case StreamCreated():
            return replace(record, placed=tuple(_placed_later(image, one) for one in record.placed))
    return record


def _placed_later(image: Image, one: Placed) -> Placed:
    left = tuple(sorted(broker for broker in one.replicas if broker in image.brokers))
    is_relied_on = not {*left}.isdisjoint(one.assignment.relied_on)
    placed = replace(
        one,
        leader=NO_BROKER,
        leader_epoch=Epoch(one.leader_epoch + _EPOCHS_SKIPPED),
        partition_epoch=PartitionEpoch(one.partition_epoch + _EPOCHS_SKIPPED),
    )
    return replace(placed, isr=left, elr=(), last_known=()) if is_relied_on else placed


def _all_replicas(stream: Stream) -> int:
    """As the minimum of each ISR, so that whoever leaves it stays eligible: nothing is committed meanwhile."""
    return max((len(one.replicas) for one in stream.assignments), default=1)


def found_group(data_dir: DataDir, disk: Disk, node_id: NodeId, copy: Copy, lost: Collection[BrokerId]) -> None:
    """Make the member of `copy` the only voter of a new generation, in which the brokers `lost` are not any more.

    Raises InvalidRequestError where one of them is no other broker of the cluster; StorageError, OSError.
    """
    own = data_dir.identity.broker_id
    for broker in lost:
        if broker == own:
            raise InvalidRequestError(f"this is the data directory of broker {own}: it is not lost")
        if broker not in copy.image.brokers:
            raise InvalidRequestError(f"no broker is registered as {broker}")
    image = recovered(copy.image, lost)
    term, index = Term(copy.term + 1), Index(copy.last + 1)
    conf_state = ConfState(voters=(node_id,))
    snapshot = Snapshot(index, term, conf_state, encode_all(tuple(image.snapshot())))
    _replace(data_dir, disk, Stored(HardState(term=term, commit=index), snapshot))


def rejoin(data_dir: DataDir, disk: Disk) -> None:
    """Forget the group, and the name of the cluster with it: the next start asks for it.

    Raises StorageError, OSError.
    """
    _replace(data_dir, disk, Stored(), joins=True)


def _replace(data_dir: DataDir, disk: Disk, stored: Stored, *, joins: bool = False) -> None:
    if disk.exists(_NEW_DIR):
        disk.remove_tree(_NEW_DIR)
        disk.sync_dir(METADATA_DIR)
    RaftFiles.create(disk, _NEW_DIR, stored)
    if disk.exists(GROUP_DIR):
        disk.rename(GROUP_DIR, f"{_BEFORE}{_latest(disk) + 1}")
        disk.sync_dir(METADATA_DIR)
    # Between the two renames there is no copy in its place, and the broker does not start: it is in no group by half.
    data_dir.begin_generation(joins=joins)
    disk.rename(_NEW_DIR, GROUP_DIR)
    disk.sync_dir(METADATA_DIR)


def _present(disk: Disk) -> str:
    """Where the copy lies: in its place, or where a run that was cut short has put it."""
    number = _latest(disk)
    return GROUP_DIR if disk.exists(GROUP_DIR) or not number else f"{_BEFORE}{number}"


def _latest(disk: Disk) -> int:
    """The number of the last copy that was put aside; 0 where there is none."""
    prefix = _BEFORE.removeprefix(f"{METADATA_DIR}/")
    numbers = [name.removeprefix(prefix) for name in disk.list(METADATA_DIR) if name.startswith(prefix)]
    return max((int(one) for one in numbers if one.isdecimal()), default=0)
