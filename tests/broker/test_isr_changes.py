"""Proposals of ISRs that come together are one entry of the metadata log, and one record for each stream."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from logboom.base.ids import BrokerId, DirectoryId, PartitionIndex, StreamId, StreamName
from logboom.broker.control.broker_commands import change_isrs
from logboom.broker.control.commands import ChangeIsr, Proposal, Refusal
from logboom.metadata import Image, MetadataRecord, Stream, StreamCreated, apply_all
from logboom.metadata.membership import RegistrationRequest, register, unfence
from logboom.metadata.placement import start
from logboom.metadata.records import PartitionsChanged, Placed

LEADER = BrokerId(1)
BROKERS = [LEADER, BrokerId(2), BrokerId(3)]
PARTITIONS = 3
STREAMS = [StreamId(UUID(int=n)) for n in (1, 2)]


def minimum_of(_: Stream) -> int:
    return 1


def two_streams() -> Image:
    """Of three partitions each, on three brokers, of which one leads all of them."""
    image = Image()
    for broker in BROKERS:
        registration = RegistrationRequest(broker, DirectoryId(f"disk-{broker}"), "a", {"client": ("h", 9)})
        image = apply_all(image, register(image, registration, minimum_of))
        image = apply_all(image, unfence(image, broker, image.brokers[broker].epoch, minimum_of))
    placed = (Placed.of(start(tuple(BROKERS), image.brokers)),) * PARTITIONS
    created = [
        StreamCreated(name=StreamName(f"s{stream.int}"), id=stream, partitions=PARTITIONS, config={}, placed=placed)
        for stream in STREAMS
    ]
    return apply_all(image, created)


class Controller:
    """The part of a `ControlContext` that commits."""

    def __init__(self) -> None:
        self.image = two_streams()
        self.minimum_of = minimum_of
        self.entries: list[Sequence[MetadataRecord]] = []

    async def commit(self, records: Sequence[MetadataRecord]) -> None:
        self.entries.append(records)
        self.image = apply_all(self.image, records)

    def proposal(self, stream: StreamId, index: int, *brokers: BrokerId, ahead: int = 0) -> Proposal:
        now = self.image.by_id[stream].assignments[index]
        isr = {int(one): int(self.image.brokers[one].epoch) for one in brokers}
        return Proposal(stream, index, now.leader_epoch, now.partition_epoch + ahead, isr)

    def change(self, *proposals: Proposal) -> list[Refusal | None]:
        epoch = int(self.image.brokers[LEADER].epoch)
        command = ChangeIsr(broker=int(LEADER), epoch=epoch, proposals=proposals)
        return asyncio.run(change_isrs(cast("Any", SimpleNamespace(**_parts(self))), command))

    def isr(self, stream: StreamId, index: int) -> tuple[BrokerId, ...]:
        found = self.image.assignment(stream, PartitionIndex(index))
        assert found is not None
        return found.isr


def _parts(controller: Controller) -> dict[str, object]:
    return {"image": controller.image, "minimum_of": controller.minimum_of, "commit": controller.commit}


def test_the_changes_of_a_stream_are_one_record() -> None:
    controller = Controller()
    proposals = [controller.proposal(stream, n, *BROKERS[:2]) for n in range(PARTITIONS) for stream in STREAMS]
    assert controller.change(*proposals) == [None] * len(proposals)
    (records,) = controller.entries
    changes = {
        one.id: [change.index for change in one.changes] for one in records if isinstance(one, PartitionsChanged)
    }
    assert changes == {stream: list(range(PARTITIONS)) for stream in STREAMS}
    assert len(records) == len(STREAMS)
    assert {controller.isr(stream, n) for stream in STREAMS for n in range(PARTITIONS)} == {tuple(BROKERS[:2])}


def test_two_proposals_for_a_partition_are_taken_one_after_the_other() -> None:
    controller = Controller()
    (stream, _) = STREAMS
    first, second = (
        controller.proposal(stream, 0, *BROKERS[:2]),
        controller.proposal(stream, 0, LEADER, ahead=1),
    )
    assert controller.change(first, second) == [None, None]
    assert controller.isr(stream, 0) == (LEADER,)


def test_a_proposal_that_is_refused_leaves_the_others() -> None:
    controller = Controller()
    stream, other = STREAMS
    late = controller.proposal(stream, 0, LEADER, ahead=-1)
    taken, refused = controller.change(controller.proposal(other, 1, LEADER), late)
    assert taken is None
    assert refused is not None
    assert controller.isr(other, 1) == (LEADER,)
    assert controller.isr(stream, 0) == tuple(BROKERS)
