"""Moving replicas off brokers and evening them out: nothing is lost, the rules hold, and it comes to an end."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import BrokerId
from logboom.metadata.assignment import Replicas
from logboom.metadata.balancing import Partition, Room, evacuate, level

Placed = dict[Partition, Replicas]
Rooms = dict[BrokerId, Room]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Placed, Rooms]:
    """Brokers in some domains and racks, and partitions that lie on them as the rules want it."""
    ids = [BrokerId(number) for number in range(1, draw(st.integers(1, 7)) + 1)]
    rooms = {
        one: Room(draw(st.sampled_from(["a", "b", "c", f"own-{one}"])), draw(st.sampled_from([None, "x", "y"])), True)
        for one in ids
    }
    placed: Placed = {}
    for number in range(draw(st.integers(0, 30))):
        replicas: list[BrokerId] = []
        for one in draw(st.permutations(ids)):
            if len(replicas) < 3 and all(rooms[one].domain != rooms[other].domain for other in replicas):
                replicas.append(one)
        placed["s", number] = tuple(replicas)
    return placed, rooms


def check_rules(before: Placed, after: Placed, rooms: Rooms) -> None:
    """The same number of replicas, none twice, and never two in a domain."""
    for partition, replicas in after.items():
        assert len(replicas) == len(set(replicas)) == len(before[partition])
        assert len({rooms[one].domain for one in replicas}) == len(replicas)


@given(clusters(), st.data())
def test_evacuated_brokers_hold_nothing_that_could_go_elsewhere(
    cluster: tuple[Placed, Rooms], data: st.DataObject
) -> None:
    placed, rooms = cluster
    leaving = data.draw(st.sets(st.sampled_from(sorted(rooms))))
    moves = evacuate(placed, rooms, leaving)
    check_rules(placed, moves, rooms)
    for partition, replicas in moves.items():
        assert not leaving & set(replicas)
        kept = [one for one in placed[partition] if one not in leaving]
        assert [one for one in replicas if one in kept] == kept, "those that stay keep their order"
    for partition, replicas in placed.items():
        if not leaving & set(replicas):
            assert partition not in moves
        elif partition not in moves:
            kept_domains = {rooms[one].domain for one in replicas if one not in leaving}
            free = {room.domain for one, room in rooms.items() if one not in leaving} - kept_domains
            assert len(free) < len(leaving & set(replicas)), "there was a place"


@given(clusters())
def test_level_keeps_the_rules_moves_little_and_is_done_at_once(cluster: tuple[Placed, Rooms]) -> None:
    placed, rooms = cluster
    moves = level(placed, rooms)
    check_rules(placed, moves, rooms)
    after = {**placed, **moves}
    assert level(after, rooms) == {}
    before_load = Counter(one for replicas in placed.values() for one in replicas)
    after_load = Counter(one for replicas in after.values() for one in replicas)
    assert sum(count**2 for count in after_load.values()) <= sum(count**2 for count in before_load.values())
    for partition, replicas in moves.items():
        racks = [len({rooms[one].rack for one in each}) for each in (placed[partition], replicas)]
        assert racks[1] >= racks[0]
    if len({room.domain for room in rooms.values()}) == len(rooms) and len({room.rack for room in rooms.values()}) == 1:
        counts = [after_load[one] for one in rooms]
        assert max(counts) - min(counts) <= 1


def test_a_new_broker_gets_its_share_and_a_dead_one_none() -> None:
    rooms = {BrokerId(one): Room(f"own-{one}", None, takes_more=one != 5) for one in (1, 2, 3, 4, 5)}
    placed: Placed = {("s", each): tuple(BrokerId((each + step) % 3 + 1) for step in range(3)) for each in range(12)}
    moves = level(placed, rooms)
    after = {**placed, **moves}
    assert Counter(one for replicas in after.values() for one in replicas) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3, 3: 3, 4: 3}
    moved = sum(len(set(after[each]) - set(placed[each])) for each in placed)
    assert moved == 9, "each replica moves once"
    back = evacuate(after, rooms, {BrokerId(4)})
    assert Counter(one for replicas in {**after, **back}.values() for one in replicas) == {1: 12, 2: 12, 3: 12}
