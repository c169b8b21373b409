"""A reassignment takes nothing away before the new replicas are in sync, and no leader unawares."""

from tests.metadata.test_cluster import BROKERS, NAME, cluster, minimum_of, proposal, the_partition

from logboom.base.ids import BrokerId
from logboom.metadata import apply_all
from logboom.metadata.leadership import change_isr
from logboom.metadata.membership import fence, unfence
from logboom.metadata.reassignment import cancel, reassign


def test_a_move_ends_when_the_new_replicas_are_in_sync() -> None:
    image = cluster(5, replicas=3)
    image = apply_all(image, reassign(image, NAME, 0, [4, 5, 1], minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.adding, now.removing, now.isr) == ((4, 5, 1, 2, 3), (4, 5), (2, 3), (1, 2, 3))
    epoch = image.brokers[BROKERS[0]].epoch
    for joined in ({1, 2, 3, 4}, {1, 2, 3, 4, 5}):
        wanted = proposal(image, set(map(BrokerId, joined)))
        image = apply_all(image, change_isr(image, BROKERS[0], epoch, wanted, minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.isr, now.leader) == ((4, 5, 1, 2, 3), (1, 2, 3, 4, 5), 1)
    wanted = proposal(image, set(map(BrokerId, {1, 4, 5})))
    image = apply_all(image, change_isr(image, BROKERS[0], epoch, wanted, minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.isr, now.reassigning, now.leader) == ((4, 5, 1), (1, 4, 5), False, 1)


def test_a_leader_that_goes_hands_over_first_and_leaves_the_isr_as_the_next_one_proposes() -> None:
    image = cluster(3, replicas=3)
    image = apply_all(image, reassign(image, NAME, 0, [2, 3], minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.removing, now.isr, now.leader) == ((2, 3, 1), (1,), (1, 2, 3), 2)
    wanted = proposal(image, {BROKERS[1], BROKERS[2]})
    image = apply_all(image, change_isr(image, BROKERS[1], image.brokers[BROKERS[1]].epoch, wanted, minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.isr, now.reassigning, now.leader) == ((2, 3), (2, 3), False, 2)


def test_a_new_replica_that_leads_hands_over_before_a_cancelled_move_takes_it_away() -> None:
    """Until it has heard of the next leader it would tell clients where the log ended, and others commit without it."""
    image = cluster(4, replicas=2)
    one, two, three = BROKERS[:3]
    image = apply_all(image, reassign(image, NAME, 0, [3, 4], minimum_of))
    wanted = proposal(image, {one, two, three})
    image = apply_all(image, change_isr(image, one, image.brokers[one].epoch, wanted, minimum_of))
    image = apply_all(image, fence(image, one, minimum_of))
    assert the_partition(image).leader == three

    image = apply_all(image, cancel(image, NAME, 0, minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.adding, now.removing) == ((one, two, three), (three,), (three,))
    assert (now.isr, now.leader) == ((two, three), two)
    image = apply_all(image, unfence(image, one, image.brokers[one].epoch, minimum_of))
    wanted = proposal(image, {one, two, three})
    image = apply_all(image, change_isr(image, two, image.brokers[two].epoch, wanted, minimum_of))
    wanted = proposal(image, {one, two})
    image = apply_all(image, change_isr(image, two, image.brokers[two].epoch, wanted, minimum_of))
    now = the_partition(image)
    assert (now.replicas, now.isr, now.reassigning, now.leader) == ((one, two), (one, two), False, two)


def test_a_cancellation_that_is_sent_again_takes_nobody_away_who_may_not_have_heard() -> None:
    """Its answer was lost with the controller, perhaps. Who is out of the ISR, or has no lease, goes at once."""
    image = cluster(4, replicas=2)
    one, two, three = BROKERS[:3]
    image = apply_all(image, reassign(image, NAME, 0, [3, 4], minimum_of))
    wanted = proposal(image, {one, two, three})
    image = apply_all(image, change_isr(image, one, image.brokers[one].epoch, wanted, minimum_of))
    image = apply_all(image, fence(image, one, minimum_of))
    image = apply_all(image, cancel(image, NAME, 0, minimum_of))
    assert cancel(image, NAME, 0, minimum_of) == ()

    left = apply_all(image, change_isr(image, two, image.brokers[two].epoch, proposal(image, {two}), minimum_of))
    for gone in (left, apply_all(image, fence(image, three, minimum_of))):
        now = the_partition(apply_all(gone, cancel(gone, NAME, 0, minimum_of)))
        assert (now.replicas, now.isr, now.leader, now.reassigning) == ((one, two), (two,), two, False)
