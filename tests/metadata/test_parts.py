"""A broker that is in thousands of partitions is fenced, leaves and comes back in parts that come to the whole."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId, StreamId, StreamName
from logboom.metadata import Image, MetadataRecord, Stream, StreamCreated, apply_all
from logboom.metadata.membership import (
    CHANGES_PER_RECORD,
    RegistrationRequest,
    begin_shutdown,
    begin_shutdown_part,
    fence,
    fence_part,
    register,
    register_part,
)
from logboom.metadata.records import BrokerChanged, BrokerRegistered, PartitionsChanged, Placed

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
Part = Callable[[Image], Sequence[MetadataRecord]]


def minimum_of(_stream: Stream) -> int:
    return 2


def image(*sizes: int) -> Image:
    """Three brokers, and streams of so many partitions that each of them holds and leads a third of."""
    records: list[MetadataRecord] = []
    for one in (ONE, TWO, THREE):
        records.append(
            BrokerRegistered(
                id=one,
                epoch=BrokerEpoch(one),
                directory_id=DirectoryId(f"directory-{one}"),
                incarnation=f"incarnation-{one}",
                listeners={},
            )
        )
        records.append(BrokerChanged(id=one, fenced=False))
    for number, size in enumerate(sizes):
        orders = ((ONE, TWO, THREE), (TWO, THREE, ONE), (THREE, ONE, TWO))
        placed = tuple(
            Placed(replicas=orders[index % 3], isr=(ONE, TWO, THREE), leader=orders[index % 3][0])
            for index in range(size)
        )
        name = f"stream-{number}"
        id_ = StreamId(UUID(int=number + 1))
        records.append(StreamCreated(name=StreamName(name), id=id_, partitions=size, config={}, placed=placed))
    return apply_all(Image(), records)


@pytest.mark.parametrize("sizes", [(3,), (CHANGES_PER_RECORD,), (2_600,), (10, 499, 2, 700, 1, 400, 300)])
@pytest.mark.parametrize("what", ["fence", "leave", "register clean", "register after a crash"])
def test_the_parts_come_to_the_whole(sizes: tuple[int, ...], what: str) -> None:
    begun = image(*sizes)
    part: Part
    whole: Part
    if what == "fence":
        part, whole = (lambda now: fence_part(now, TWO, minimum_of)), (lambda now: fence(now, TWO, minimum_of))
    elif what != "leave":
        wanted = RegistrationRequest(
            TWO,
            DirectoryId(f"directory-{TWO}"),
            "next",
            {},
            clean_epoch=begun.brokers[TWO].epoch if what == "register clean" else None,
        )
        part = lambda now: register_part(now, wanted, minimum_of)  # noqa: E731
        whole = lambda now: register(now, wanted, minimum_of)  # noqa: E731
    else:
        epoch = begun.brokers[TWO].epoch
        part = lambda now: begin_shutdown_part(now, TWO, epoch, minimum_of)  # noqa: E731
        whole = lambda now: begin_shutdown(now, TWO, epoch, minimum_of)  # noqa: E731
    now, parts = begun, 0
    while records := part(now):
        assert CHANGES_PER_RECORD <= changes(records) < 2 * CHANGES_PER_RECORD
        now, parts = apply_all(now, records), parts + 1
        assert now.brokers[TWO].active
    records = whole(now)
    assert changes(records) < CHANGES_PER_RECORD
    now = apply_all(now, records)
    assert parts >= sum(sizes) // (2 * CHANGES_PER_RECORD)
    assert not now.brokers[TWO].active
    assert list(now) == list(apply_all(begun, whole(begun)))
    assert not part(now)


def changes(records: Sequence[MetadataRecord]) -> int:
    return sum(len(one.changes) for one in records if isinstance(one, PartitionsChanged))
