"""Who leads the partitions of new streams."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

import pytest
from tests.metadata.test_cluster import BROKERS, NAME, cluster, minimum_of

from logboom.base.errors import InvalidAssignmentError, InvalidReplicationFactorError
from logboom.base.ids import StreamId
from logboom.metadata import CreateStream, Image, MetadataRecord, add_partitions, apply_all, create_stream
from logboom.metadata.limits import MetadataLimits
from logboom.metadata.membership import begin_shutdown, fence, unfence
from logboom.metadata.placement import Load, place

Replicas: TypeAlias = Sequence[Sequence[int]]
Made: TypeAlias = Callable[[Image, Replicas | None], tuple[MetadataRecord, ...]]
OTHER = StreamId(UUID(int=2))


def test_the_leaders_of_a_stream_are_spread_where_others_have_made_brokers_uneven() -> None:
    """Else a stream would be on the emptier broker alone, whatever its load is."""
    image = cluster(3)
    load = Load(replicas=Counter({BROKERS[0]: 50}), preferred=Counter({BROKERS[0]: 50}))
    placed = place(image.brokers, load, partitions=7, replication_factor=2, first=0)
    assert sorted(Counter(replicas[0] for replicas in placed).values()) == [2, 2, 3]
    own = Load()
    for replicas in placed:
        own.add(replicas)
    place(image.brokers, load, partitions=2, replication_factor=1, first=0, own=own)
    assert set(own.preferred.values()) == {3}


LIMITS = MetadataLimits(partitions_max=9, streams_max=9, quotas_max=1)


def created(image: Image, assignments: Replicas | None) -> tuple[MetadataRecord, ...]:
    wanted = CreateStream("other", 1, replication_factor=2, config={}, assignments=assignments)
    return create_stream(image, wanted, OTHER, LIMITS)


def grown(image: Image, assignments: Replicas | None) -> tuple[MetadataRecord, ...]:
    return add_partitions(image, NAME, 2, LIMITS, assignments)


@pytest.mark.parametrize("made", [created, grown])
def test_no_partition_is_made_of_which_no_replica_is_active(made: Made) -> None:
    """Nobody would be in its ISR, nor eligible for that: it stayed without a leader for good. Found by `logboom sim run
    --nodes 3 --seed 600078 --seconds 60`."""
    image = cluster(3, replicas=2)
    for broker in BROKERS[:3]:
        image = apply_all(image, fence(image, broker, minimum_of))
    with pytest.raises(InvalidReplicationFactorError, match="wait until one is not fenced"):
        made(image, None)
    image = apply_all(image, unfence(image, BROKERS[0], image.brokers[BROKERS[0]].epoch, minimum_of))
    with pytest.raises(InvalidAssignmentError, match=r"none of brokers \[2, 3\]"):
        made(image, [[2, 3]])
    assert apply_all(image, made(image, [[2, 1]])) != image
    assert apply_all(image, made(image, None)) != image


def test_a_broker_that_has_ended_takes_replicas_like_any_fenced_one() -> None:
    """Else no stream of three replicas could be made on three brokers while one of them is updated. As in Kafka, only
    while it is about to end nothing is placed there."""
    image = cluster(3)
    leaving = image.brokers[BROKERS[2]]
    image = apply_all(image, begin_shutdown(image, leaving.id, leaving.epoch, minimum_of))
    with pytest.raises(InvalidReplicationFactorError, match="3 cannot be had with 2 brokers"):
        place(image.brokers, Load(), partitions=1, replication_factor=3, first=0)
    image = apply_all(image, fence(image, leaving.id, minimum_of))
    assert {replicas[2] for replicas in place(image.brokers, Load(), partitions=3, replication_factor=3, first=0)} == {
        3
    }
    for replicas in place(image.brokers, Load(), partitions=6, replication_factor=2, first=0):
        assert set(replicas) == {1, 2}
