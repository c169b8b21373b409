"""Streams that were created when there were fewer brokers get the replicas that were asked for."""

from collections import Counter
from dataclasses import replace

import pytest
from tests.metadata.test_cluster import BROKERS, NAME, STREAM, cluster, minimum_of, registration

from logboom.base.errors import UnknownStreamError
from logboom.base.ids import BrokerId, PartitionIndex, StreamName
from logboom.metadata import Image, StreamCreated, apply_all
from logboom.metadata.assignment import Assignment
from logboom.metadata.leadership import IsrProposal, change_isr, rebalance
from logboom.metadata.membership import drain, fence, register, unfence
from logboom.metadata.placement import start
from logboom.metadata.reassignment import add_replicas, fit_minimum, reassign
from logboom.metadata.records import Placed
from logboom.metadata.stream_config import MINIMUM

PARTITIONS = 6


def alone() -> Image:
    """One broker with a stream of its own."""
    image = cluster(1)
    placed = tuple(Placed.of(start((BROKERS[0],), image.brokers)) for _ in range(PARTITIONS))
    return apply_all(
        image,
        (
            StreamCreated(
                name=StreamName(NAME), id=STREAM, partitions=PARTITIONS, config={}, placed=placed, internal=True
            ),
        ),
    )


def joined(image: Image, *brokers: BrokerId, domain: str = "") -> Image:
    for broker in brokers:
        image = apply_all(image, register(image, replace(registration(broker), failure_domain=domain), minimum_of))
        image = apply_all(image, unfence(image, broker, image.brokers[broker].epoch, minimum_of))
    return image


def assignments(image: Image) -> tuple[Assignment, ...]:
    return image.by_id[STREAM].assignments


def caught_up(image: Image, *brokers: BrokerId) -> Image:
    """Every replica is in sync, or those on these brokers."""
    for index, one in enumerate(assignments(image)):
        isr = {broker: image.brokers[broker].epoch for broker in brokers or one.replicas}
        wanted = IsrProposal(STREAM, PartitionIndex(index), one.leader_epoch, one.partition_epoch, isr)
        image = apply_all(image, change_isr(image, one.leader, image.brokers[one.leader].epoch, wanted, minimum_of))
    return image


def test_replicas_and_then_leaderships_spread_over_the_brokers_that_have_come() -> None:
    image = joined(alone(), *BROKERS[1:3])
    image = apply_all(image, add_replicas(image, NAME, 3, minimum_of))
    for one in assignments(image):
        assert (set(one.replicas), one.isr, one.leader) == ({1, 2, 3}, (1,), 1)
        assert set(one.adding) == {2, 3}
    assert add_replicas(image, NAME, 3, minimum_of) == (), "it is under way"
    image = caught_up(image)
    assert not any(one.reassigning for one in assignments(image))
    assert add_replicas(image, NAME, 3, minimum_of) == ()
    image = apply_all(image, rebalance(image, minimum_of, most=100))
    assert Counter(one.leader for one in assignments(image)) == {1: 2, 2: 2, 3: 2}


def test_replicas_come_as_brokers_do() -> None:
    image = joined(alone(), BROKERS[1])
    image = caught_up(apply_all(image, add_replicas(image, NAME, 3, minimum_of)))
    assert {len(one.replicas) for one in assignments(image)} == {2}
    image = joined(image, *BROKERS[2:])
    image = caught_up(apply_all(image, add_replicas(image, NAME, 3, minimum_of)))
    assert {len(one.isr) for one in assignments(image)} == {3}
    load = Counter(broker for one in assignments(image) for broker in one.replicas)
    assert load[BROKERS[0]] == load[BROKERS[1]] == PARTITIONS
    assert [load[one] for one in BROKERS[2:]] == [2, 2, 2]


def fitted(image: Image, wanted: int = 2) -> str:
    """The minimum of in-sync replicas after the upkeep of an internal stream."""
    image = apply_all(image, fit_minimum(image, NAME, wanted))
    assert fit_minimum(image, NAME, wanted) == (), "it is as it should be"
    return image.by_id[STREAM].overrides.get(MINIMUM, "1")


def test_the_minimum_of_an_internal_stream_follows_its_replicas() -> None:
    image = joined(alone(), *BROKERS[1:3])
    assert fitted(image) == "1"
    image = apply_all(image, add_replicas(image, NAME, 3, minimum_of))
    assert fitted(image) == "1", "nobody else is in sync yet"
    image = caught_up(image, BROKERS[0], BROKERS[1])
    assert fitted(image) == "2", "two are in sync"
    image = caught_up(image)
    assert (fitted(image), fitted(image, wanted=1), fitted(image, wanted=3)) == ("2", "1", "2")
    image = apply_all(image, fit_minimum(image, NAME, 2))
    for index in range(PARTITIONS):
        image = apply_all(image, reassign(image, NAME, index, [1], minimum_of))
    assert fitted(image) == "1", "one of one must be enough as soon as one is to stay"
    two = joined(alone(), BROKERS[1])
    two = caught_up(apply_all(two, add_replicas(two, NAME, 3, minimum_of)))
    assert fitted(two) == "1", "of two replicas either may be missing"
    with pytest.raises(UnknownStreamError):
        fit_minimum(image, "other", 2)


def test_only_brokers_that_can_keep_them_get_replicas() -> None:
    image = alone()
    assert add_replicas(image, NAME, 3, minimum_of) == ()
    image = joined(image, *BROKERS[1:4])
    image = apply_all(image, fence(image, BROKERS[1], minimum_of))
    image = apply_all(image, drain(image, BROKERS[2], draining=True))
    image = apply_all(image, add_replicas(image, NAME, 3, minimum_of))
    assert {frozenset(one.replicas) for one in assignments(image)} == {frozenset({1, 4})}


def test_no_two_replicas_get_into_one_failure_domain() -> None:
    image = joined(alone(), *BROKERS[1:3], domain="one machine")
    image = apply_all(image, add_replicas(image, NAME, 3, minimum_of))
    assert {len(one.replicas) for one in assignments(image)} == {2}


def test_a_partition_that_nobody_leads_waits() -> None:
    image = joined(alone(), *BROKERS[1:3])
    image = apply_all(image, fence(image, BROKERS[0], minimum_of))
    assert add_replicas(image, NAME, 3, minimum_of) == ()
    with pytest.raises(UnknownStreamError):
        add_replicas(image, "other", 3, minimum_of)
