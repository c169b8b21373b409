"""Observers are where streams ask for them, and nothing that is promised ever hangs on one."""

from random import Random
from uuid import UUID

import pytest

from logboom.base.errors import (
    EligibleLeadersNotAvailableError,
    InvalidAssignmentError,
    InvalidConfigError,
    InvalidRequestError,
)
from logboom.base.ids import BrokerId, DirectoryId, StreamId, StreamName
from logboom.metadata import (
    CreateStream,
    Image,
    MetadataLimits,
    MetadataRecord,
    Stream,
    add_partitions,
    apply_all,
    change_config,
    create_stream,
    decode,
    encode,
)
from logboom.metadata.assignment import Assignment, Election
from logboom.metadata.leadership import elect
from logboom.metadata.membership import RegistrationRequest, drain, fence, register, unfence, unregister
from logboom.metadata.observers import OBSERVERS, observe_all, reconfigured
from logboom.metadata.placement import replication_factor_max
from logboom.metadata.reassignment import reassign

LIMITS = MetadataLimits(partitions_max=1_000, streams_max=100, quotas_max=10)
NAME = "orders"
OBSERVER_BROKER = BrokerId(9)


def minimum_of(stream: Stream) -> int:
    return int(stream.overrides.get("min.insync.replicas", "1"))


def observers_of(stream: Stream) -> int:
    return int(stream.overrides.get(OBSERVERS, "0"))


def joined(image: Image, broker: int, *, rack: str | None = None, domain: str = "", observer: bool = False) -> Image:
    wanted = RegistrationRequest(
        BrokerId(broker), DirectoryId(f"disk-{broker}"), "a", {}, rack=rack, failure_domain=domain, observer=observer
    )
    image = apply_all(image, register(image, wanted, minimum_of))
    return apply_all(image, unfence(image, BrokerId(broker), image.brokers[BrokerId(broker)].epoch, minimum_of))


def brokers(count: int) -> Image:
    image = Image()
    for broker in range(1, count + 1):
        image = joined(image, broker)
    return image


def created(image: Image, *, replicas: int, observers: int, partitions: int = 1, name: str = NAME) -> Image:
    command = CreateStream(
        name=name,
        partitions=partitions,
        replication_factor=replicas,
        config={OBSERVERS: str(observers)},
        observers=observers,
    )
    return apply_all(image, create_stream(image, command, StreamId(UUID(int=len(image.by_name) + 1)), LIMITS))


def first(image: Image, name: str = NAME) -> Assignment:
    return image.by_name[StreamName(name)].assignments[0]


def upkept(image: Image) -> Image:
    """As the controller's upkeep does."""
    return apply_all(image, observe_all(image, observers_of, minimum_of))


def reread(image: Image) -> Image:
    return apply_all(Image(), [decode(encode(record)) for record in image.snapshot()])


def test_a_stream_is_created_with_observers_beside_its_replicas() -> None:
    image = created(brokers(5), replicas=3, observers=2, partitions=5)
    for one in image.by_name[StreamName(NAME)].assignments:
        assert len(one.replicas) == 3
        assert len(one.observers) == 2
        assert not set(one.observers) & {*one.replicas, *one.isr, one.leader}
    assert reread(image) == image


def test_new_partitions_have_observers_too() -> None:
    image = created(brokers(3), replicas=1, observers=1)
    image = apply_all(image, add_partitions(image, NAME, 4, LIMITS, observers=1))
    assert [len(one.observers) for one in image.by_name[StreamName(NAME)].assignments] == [1, 1, 1, 1]
    assert reread(image) == image


def test_observers_go_where_no_copy_is_yet() -> None:
    image = Image()
    for broker, rack, domain in ((1, "a", "m1"), (2, "a", "m2"), (3, "b", "m1"), (4, "c", "m3")):
        image = joined(image, broker, rack=rack, domain=domain)
    command = CreateStream(NAME, 1, 1, {}, assignments=[[1]], observers=3)
    image = apply_all(image, create_stream(image, command, StreamId(UUID(int=1)), LIMITS))
    assert first(image).observers == (2, 3, 4)
    alone = CreateStream("one", 1, 1, {}, assignments=[[1]], observers=1)
    image = apply_all(image, create_stream(image, alone, StreamId(UUID(int=2)), LIMITS))
    assert first(image, "one").observers == (4,), "another machine, and another rack"


def test_a_broker_that_only_observes_gets_no_replicas_and_observers_first() -> None:
    image = joined(brokers(3), OBSERVER_BROKER, observer=True)
    assert replication_factor_max(image.brokers) == 3
    image = created(image, replicas=2, observers=1, partitions=6)
    for one in image.by_name[StreamName(NAME)].assignments:
        assert one.observers == (OBSERVER_BROKER,)
        assert OBSERVER_BROKER not in one.replicas
    with pytest.raises(InvalidAssignmentError, match="broker 9 is an observer"):
        reassign(image, NAME, 0, (1, OBSERVER_BROKER), minimum_of)
    assert reread(image) == image


def test_too_many_observers_are_refused_and_nothing_changes() -> None:
    image = brokers(3)
    with pytest.raises(
        InvalidConfigError, match=r"logboom\.observers=2 cannot be had: partition 0 has replicas on 2 of 3"
    ):
        created(image, replicas=2, observers=2)
    image = created(image, replicas=2, observers=1)
    changed = apply_all(image, change_config(image, NAME, {OBSERVERS: "2"}))
    with pytest.raises(InvalidConfigError, match=r"logboom\.observers=2 cannot be had"):
        reconfigured(changed, NAME, "2", observers_of, minimum_of)


def test_their_number_can_be_changed() -> None:
    image = created(brokers(4), replicas=2, observers=0, partitions=3)
    for wanted in (2, 1, 0):
        image = apply_all(image, change_config(image, NAME, {OBSERVERS: str(wanted)}))
        image = apply_all(image, reconfigured(image, NAME, str(wanted), observers_of, minimum_of))
        assert {len(one.observers) for one in image.by_name[StreamName(NAME)].assignments} == {wanted}
        assert upkept(image) == image
        assert reread(image) == image


def test_an_observer_becomes_a_replica_by_a_reassignment_and_another_one_takes_its_place() -> None:
    image = created(brokers(4), replicas=2, observers=1)
    (observer,) = first(image).observers
    (other,) = set(image.brokers) - set(first(image).holders)
    image = apply_all(image, reassign(image, NAME, 0, (*first(image).replicas, observer), minimum_of))
    assert first(image).adding == (observer,)
    assert first(image).observers == ()
    assert first(upkept(image)).observers == (other,)


def test_a_drained_broker_loses_its_observers_and_a_removed_one_too() -> None:
    image = created(brokers(4), replicas=2, observers=1)
    (observer,) = first(image).observers
    (other,) = set(image.brokers) - set(first(image).holders)
    drained = upkept(apply_all(image, drain(image, observer, draining=True)))
    assert first(drained).observers == (other,)
    dead = apply_all(image, fence(image, observer, minimum_of))
    assert first(upkept(dead)).observers == (observer,), "it may come back"
    removed = apply_all(dead, unregister(dead, observer, minimum_of))
    assert first(removed).observers == ()
    assert first(upkept(removed)).observers == (other,)


def test_no_observer_is_elected_whoever_dies() -> None:
    image = created(brokers(3), replicas=1, observers=2)
    (leader,) = first(image).replicas
    image = apply_all(image, fence(image, leader, minimum_of))
    with pytest.raises(EligibleLeadersNotAvailableError, match="no replica of orders-0 is active"):
        elect(image, NAME, 0, Election.UNCLEAN, minimum_of)


def test_what_a_broker_is_for_stays_the_same() -> None:
    image = joined(brokers(1), OBSERVER_BROKER, observer=True)
    ordinary = RegistrationRequest(OBSERVER_BROKER, DirectoryId("disk-9"), "b", {})
    with pytest.raises(InvalidRequestError, match="broker 9 is registered as an observer, and stays that"):
        register(image, ordinary, minimum_of)
    observing = RegistrationRequest(BrokerId(1), DirectoryId("disk-1"), "b", {}, observer=True)
    with pytest.raises(InvalidRequestError, match="start it without --observer"):
        register(image, observing, minimum_of)


def test_records_of_streams_without_observers_are_read_by_earlier_programs() -> None:
    image = brokers(2)
    records: list[MetadataRecord] = list(created(image, replicas=1, observers=0).snapshot())
    for record in records:
        assert b"observer" not in encode(record).replace(b'"logboom.observers"', b"")
    versions = {type(record).__name__: record.version for record in records}
    assert (versions["StreamCreated"], versions["BrokerRegistered"]) == (2, 1)
    observed = {type(one).__name__: one.version for one in created(image, replicas=1, observers=1).snapshot()}
    assert observed["StreamCreated"] == 3


@pytest.mark.parametrize("seed", range(20))
def test_whatever_brokers_do_observers_stay_apart(seed: int) -> None:
    """Brokers come, drain, die and go, replicas move: no observer is a replica, and as many are there as can be."""
    random = Random(seed)
    image = created(brokers(5), replicas=2, observers=2, partitions=3)
    for step in range(60):
        broker = random.choice(sorted(image.brokers))
        match random.randrange(5):
            case 0:
                image = apply_all(image, drain(image, broker, draining=not image.brokers[broker].draining))
            case 1:
                image = apply_all(image, fence(image, broker, minimum_of))
            case 2:
                epoch = image.brokers[broker].epoch
                image = apply_all(image, unfence(image, broker, epoch, minimum_of))
            case 3:
                held = {one for each in image.by_name[StreamName(NAME)].assignments for one in each.replicas}
                if broker not in held and not image.brokers[broker].active:
                    image = apply_all(image, unregister(image, broker, minimum_of))
                else:
                    image = joined(image, 100 + step, observer=random.random() < 0.3)
            case _:
                fit = [one for one in image.brokers if not image.brokers[one].observer]
                target = random.sample(sorted(fit), 2)
                image = apply_all(image, reassign(image, NAME, random.randrange(3), target, minimum_of))
        image = upkept(image)
        assert upkept(image) == image
        assert reread(image) == image
        free = [one.id for one in image.brokers.values() if one.placeable]
        for one in image.by_name[StreamName(NAME)].assignments:
            assert not set(one.observers) & {*one.replicas, *one.isr, *one.elr, *one.adding, one.leader}
            assert not any(image.brokers[each].draining for each in one.observers)
            assert len(one.observers) == min(2, len(set(free) - set(one.replicas)))
