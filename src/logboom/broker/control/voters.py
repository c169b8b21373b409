"""Which brokers are members of the consensus group, and which of those vote: the next change to make. Pure.

Every registered broker is a member, so that it gets the whole metadata log; an odd number of them are voters, three by
default, or all there are if those are fewer than three: two voters would need both, so of two brokers one votes.
Observers never vote. A voter that is down stays a voter until its broker is removed, since it may come back. One that
is drained gives its vote to a broker that has none, as soon as there is one: if it were the only voter, nobody could
remove it once it is stopped. One change is made at a time, and one that takes several steps goes through a joint
configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logboom.base.ids import BrokerId
from logboom.raft import ConfChangeSingle, ConfChangeType, ConfChangeV2, NodeId

_CAUGHT_UP_ENTRIES: Final = 1_000
"""How far a learner may be behind when it becomes a voter: what it lacks then delays no commit for long."""


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of the group as its leader sees it."""

    is_voter: bool
    behind_entries: int
    is_responding: bool


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A registered broker, as far as membership goes."""

    node_id: NodeId
    may_vote: bool
    """False for a broker that is fenced, is to leave, or only observes."""
    leaves: bool = False
    """Whether it is drained."""
    observer: bool = False
    """Whether it only observes: it does not count where the number of voters is found."""


def next_change(
    brokers: Mapping[BrokerId, RegisteredBroker], members: Mapping[NodeId, MemberState], own: NodeId, *, voters_max: int
) -> ConfChangeV2 | None:
    """The next change towards the wanted members and voters; None where the group has them already."""
    wanted = {one.node_id for one in brokers.values()}
    leaving = {one.node_id for one in brokers.values() if one.leaves}
    new = sorted(wanted - members.keys())
    if new:
        return _change(dict.fromkeys(new, ConfChangeType.ADD_LEARNER_NODE))
    changes: dict[NodeId, ConfChangeType] = {}
    gone = [node for node in members if node not in wanted and node != own]
    voters = [node for node, one in members.items() if one.is_voter and node not in gone]
    count = voters_wanted(sum(not one.observer for one in brokers.values()), voters_max)
    if len(voters) > count:
        for node in _least_useful(voters, brokers, members, own)[: len(voters) - count]:
            changes[node] = ConfChangeType.ADD_LEARNER_NODE
    elif len(voters) < count:
        ready = _promotable(brokers, members)
        if len(voters) + len(ready) >= count:  # all at once, since an even number of voters is worse than one less
            for node in ready[: count - len(voters)]:
                changes[node] = ConfChangeType.ADD_NODE
    else:
        ready = _promotable(brokers, members)
        for old, node in zip(sorted(leaving.intersection(voters)), ready, strict=False):
            changes[node] = ConfChangeType.ADD_NODE
            if old != own:  # its successor does that, once it leads
                changes[old] = ConfChangeType.ADD_LEARNER_NODE
    for node in gone:
        changes[node] = ConfChangeType.REMOVE_NODE
    return _change(changes) if changes else None


def successor(
    brokers: Mapping[BrokerId, RegisteredBroker], members: Mapping[NodeId, MemberState], own: NodeId
) -> NodeId | None:
    """The voter that is to lead the group in place of this broker, which is drained; None if it is not, or no other
    voter can."""
    if not any(one.leaves for one in brokers.values() if one.node_id == own):
        return None
    fit = [one.node_id for one in brokers.values() if one.may_vote and one.node_id in members]
    voters = [node for node in fit if members[node].is_voter and members[node].is_responding]
    return min(voters, key=lambda node: (members[node].behind_entries, node), default=None)


def voters_wanted(brokers: int, voters_max: int) -> int:
    """The largest odd number that is possible.

    >>> [voters_wanted(brokers, 3) for brokers in (1, 2, 3, 4, 5)]
    [1, 1, 3, 3, 3]
    """
    most = max(min(brokers, voters_max), 1)
    return most - (most + 1) % 2


def _promotable(brokers: Mapping[BrokerId, RegisteredBroker], members: Mapping[NodeId, MemberState]) -> list[NodeId]:
    return [
        one.node_id
        for _, one in sorted(brokers.items())
        if one.may_vote
        and not members[one.node_id].is_voter
        and members[one.node_id].is_responding
        and members[one.node_id].behind_entries <= _CAUGHT_UP_ENTRIES
    ]


def _least_useful(
    voters: list[NodeId],
    brokers: Mapping[BrokerId, RegisteredBroker],
    members: Mapping[NodeId, MemberState],
    own: NodeId,
) -> list[NodeId]:
    """Voters in the order in which they are demoted; the leader is never demoted."""
    may_vote = {one.node_id: one.may_vote for one in brokers.values()}
    others = [node for node in voters if node != own]
    return sorted(others, key=lambda node: (may_vote.get(node, False), members[node].is_responding, -node))


def _change(changes: Mapping[NodeId, ConfChangeType]) -> ConfChangeV2:
    return ConfChangeV2(tuple(ConfChangeSingle(kind, node) for node, kind in changes.items()))
