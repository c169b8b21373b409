"""A reassignment takes nothing away before the new replicas are in sync, and no leader unawares."""

from tests.metadata.test_cluster import BROKERS, NAME, cluster, minimum_of, proposal, the_partition

from logboom.base.ids import BrokerId
from logboom.metadata import apply_all
from logboom.metadata.leadership import change_isr
from logboom.metadata.reassignment import reassign


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
