"""Which brokers vote on the metadata: the next change of the consensus group."""

from collections.abc import Collection

from logboom.base.ids import BrokerId
from logboom.broker.control.voters import MemberState, RegisteredBroker, next_change, successor
from logboom.raft import ConfChangeType, NodeId

ADD, DEMOTE = ConfChangeType.ADD_NODE, ConfChangeType.ADD_LEARNER_NODE


def brokers_of(count: int, *, drained: Collection[int] = ()) -> dict[BrokerId, RegisteredBroker]:
    """Registered brokers from 1 on; each is the node of its number."""
    return {
        BrokerId(number): RegisteredBroker(NodeId(number), may_vote=number not in drained, leaves=number in drained)
        for number in range(1, count + 1)
    }


def members_of(
    count: int, voters: Collection[int], *, behind: Collection[int] = (), silent: Collection[int] = ()
) -> dict[NodeId, MemberState]:
    return {
        NodeId(number): MemberState(number in voters, 5_000 if number in behind else 0, number not in silent)
        for number in range(1, count + 1)
    }


def change(
    brokers: dict[BrokerId, RegisteredBroker], members: dict[NodeId, MemberState], own: int
) -> dict[int, ConfChangeType]:
    found = next_change(brokers, members, NodeId(own), voters_max=3)
    return {} if found is None else {int(one.node_id): one.type for one in found.changes}


def test_the_only_voter_that_is_drained_makes_another_one_which_then_leads_and_takes_its_vote() -> None:
    drained = brokers_of(2, drained=[1])
    assert change(brokers_of(2), members_of(2, [1]), own=1) == {}
    assert change(drained, members_of(2, [1]), own=1) == {2: ADD}
    assert successor(drained, members_of(2, [1]), NodeId(1)) is None
    assert successor(drained, members_of(2, [1, 2]), NodeId(1)) == 2
    assert successor(drained, members_of(2, [1, 2]), NodeId(2)) is None
    assert change(drained, members_of(2, [1, 2]), own=2) == {1: DEMOTE}
    assert change(drained, members_of(2, [2]), own=2) == {}


def test_nobody_gets_the_vote_of_a_drained_one_who_could_not_use_it() -> None:
    drained = brokers_of(2, drained=[1])
    assert change(drained, members_of(2, [1], behind=[2]), own=1) == {}
    assert change(drained, members_of(2, [1], silent=[2]), own=1) == {}
    assert successor(drained, members_of(2, [1, 2], silent=[2]), NodeId(1)) is None
    assert change(brokers_of(2, drained=[1, 2]), members_of(2, [1]), own=1) == {}


def test_of_three_voters_a_drained_one_is_replaced_in_one_change_where_there_is_another_broker() -> None:
    drained = brokers_of(4, drained=[3])
    assert change(drained, members_of(4, [1, 2, 3]), own=1) == {4: ADD, 3: DEMOTE}
    assert change(brokers_of(3, drained=[3]), members_of(3, [1, 2, 3]), own=1) == {}
    assert successor(drained, members_of(4, [1, 2, 3], behind=[1]), NodeId(3)) == 2
    assert change(drained, members_of(4, [1, 2, 4]), own=1) == {}
