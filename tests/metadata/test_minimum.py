"""`min.insync.replicas`: how high it may be, and who may be elected once it is lower than it was."""

from dataclasses import replace

import pytest
from tests.metadata.test_cluster import BROKERS, NAME, STREAM, cluster, minimum_of, the_partition

from logboom.base.errors import InvalidAssignmentError, InvalidConfigError
from logboom.base.ids import NO_BROKER, StreamName
from logboom.metadata import CreateStream, MetadataLimits, add_partitions, apply_all, change_config, create_stream
from logboom.metadata.leadership import forget_eligible
from logboom.metadata.membership import fence, unfence
from logboom.metadata.reassignment import cancel, reassign
from logboom.metadata.stream_config import MINIMUM


def test_whom_a_lower_minimum_makes_dispensable_is_not_elected() -> None:
    """Broker 3 left the ISR while it was below the minimum of 2, so nothing was committed without it. Once the minimum
    is 1, broker 1 commits alone. (Found by reading: broker 3 was elected when broker 1 died, without those records.)"""
    image = cluster(3, replicas=3, minimum=2)
    for broker in BROKERS[1:3]:
        image = apply_all(image, fence(image, broker, minimum_of))
    assert (the_partition(image).isr, the_partition(image).elr) == ((1,), (3,))
    assert forget_eligible(image, image, minimum_of) == ()
    image = apply_all(image, change_config(image, NAME, {MINIMUM: "1"}))
    image = apply_all(image, forget_eligible(image, image, minimum_of))
    assert (the_partition(image).leader, the_partition(image).elr) == (1, ())
    image = apply_all(image, unfence(image, BROKERS[2], image.brokers[BROKERS[2]].epoch, minimum_of))
    image = apply_all(image, fence(image, BROKERS[0], minimum_of))
    assert (the_partition(image).leader, the_partition(image).elr) == (NO_BROKER, (1,))


def test_who_may_be_elected_stays_so_where_nobody_leads() -> None:
    image = cluster(3, replicas=3, minimum=2)
    for broker in (BROKERS[1], BROKERS[2], BROKERS[0]):
        image = apply_all(image, fence(image, broker, minimum_of))
    image = apply_all(image, change_config(image, NAME, {MINIMUM: "1"}))
    assert forget_eligible(image, image, minimum_of) == ()
    image = apply_all(image, unfence(image, BROKERS[2], image.brokers[BROKERS[2]].epoch, minimum_of))
    assert the_partition(image).leader == 3, "nothing was committed without it"


def test_a_minimum_above_the_replicas_is_refused_wherever_it_is_asked_for() -> None:
    """It would refuse every record, and look like a broken cluster."""
    image = cluster(4)
    limits = MetadataLimits(partitions_max=10, streams_max=10, quotas_max=1)
    above = CreateStream(name="s", partitions=1, replication_factor=2, config={MINIMUM: "3"})
    with pytest.raises(InvalidConfigError, match=r"is above the number of replicas, 2: .* Set it to 2"):
        create_stream(image, above, STREAM, limits)
    image = apply_all(image, create_stream(image, replace(above, config={MINIMUM: "2"}), STREAM, limits))
    with pytest.raises(InvalidConfigError, match="above the number of replicas, 2"):
        change_config(image, "s", {MINIMUM: "3"})
    with pytest.raises(InvalidAssignmentError, match=r"min\.insync\.replicas=2 is above the number of replicas, 1"):
        reassign(image, "s", 0, (1,), minimum_of)
    assert change_config(image, "s", {"retention.ms": "1"}), "other settings are changed as before"
    image = apply_all(image, reassign(image, "s", 0, (1, 2, 3), minimum_of))
    assert change_config(image, "s", {MINIMUM: "3"}), "what it is going to have counts"


def test_no_order_of_a_move_and_a_higher_minimum_leaves_a_partition_that_can_never_meet_it() -> None:
    image = cluster(4)
    limits = MetadataLimits(partitions_max=10, streams_max=10, quotas_max=1)
    wanted = CreateStream(name="s", partitions=1, replication_factor=1, config={})
    image = apply_all(image, create_stream(image, wanted, STREAM, limits))
    (alone,) = image.by_name[StreamName("s")].assignments[0].replicas
    others = [one for one in BROKERS if one != alone]
    image = apply_all(image, reassign(image, "s", 0, (alone, *others[:2]), minimum_of))
    image = apply_all(image, change_config(image, "s", {MINIMUM: "3"}))
    with pytest.raises(InvalidAssignmentError, match=r"=3 is above the number of replicas, 1: .* Set it to 1"):
        cancel(image, "s", 0, minimum_of)
    with pytest.raises(InvalidAssignmentError, match="above the number of replicas, 2"):
        reassign(image, "s", 0, others[:2], minimum_of)
    with pytest.raises(InvalidAssignmentError, match="above the number of replicas, 1"):
        add_partitions(image, "s", 2, limits, [[alone]])
    grown = apply_all(image, add_partitions(image, "s", 2, limits))
    assert len(grown.by_name[StreamName("s")].assignments[1].replicas) == 3, "as many as the first is going to have"
    lower = apply_all(image, change_config(image, "s", {MINIMUM: "1"}))
    assert cancel(lower, "s", 0, minimum_of), "once the minimum is lower it is taken back"
