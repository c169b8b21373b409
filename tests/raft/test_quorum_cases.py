"""etcd's published cases of committed indexes and votes, and what must hold of every one of them."""

from pathlib import Path

import pytest
from tests.raft.datadriven import Case, case_files, read_cases

from logboom.raft.messages import Index, NodeId
from logboom.raft.quorum import (
    NO_BOUND,
    JointConfig,
    VoteResult,
    majority_committed_index,
    majority_vote_result,
)


def ids_of(case: Case, key: str) -> list[NodeId]:
    return [NodeId(int(value)) for value in case.values(key) if value != "zero"]


def told(case: Case, key: str) -> dict[NodeId, str]:
    """What each voter says; `_` stands for nothing."""
    voters = dict.fromkeys(ids_of(case, "cfg") + ids_of(case, "cfgj"))
    values = case.values(key)
    if len(voters) != len(values):
        raise ValueError(f"error: mismatched input (explicit or _) for voters {list(voters)}: {values}")
    return {voter: value for voter, value in zip(voters, values, strict=True) if value != "_"}


def committed(case: Case) -> str:
    acked = {voter: Index(int(value)) for voter, value in told(case, "idx").items()}
    voters, joined = frozenset(ids_of(case, "cfg")), frozenset(ids_of(case, "cfgj"))
    index = JointConfig(voters, joined).committed_index(acked.get)
    assert JointConfig(joined, voters).committed_index(acked.get) == index
    if not case.values("cfgj"):
        assert majority_committed_index(voters, acked.get) == index
        assert JointConfig(voters, voters).committed_index(acked.get) == index
        for voter in voters & acked.keys():
            if acked[voter] < index:  # a voter who is behind changes nothing by being further behind
                assert majority_committed_index(voters, {**acked, voter: Index(0)}.get) == index
    return "∞" if index == NO_BOUND else str(index)


def vote(case: Case) -> str:
    votes = {voter: value == "y" for voter, value in told(case, "votes").items()}
    voters, joined = frozenset(ids_of(case, "cfg")), frozenset(ids_of(case, "cfgj"))
    result: VoteResult = JointConfig(voters, joined).vote_result(votes)
    assert JointConfig(joined, voters).vote_result(votes) is result
    if not case.values("cfgj"):
        assert majority_vote_result(voters, votes) is result
    return result.value


@pytest.mark.parametrize("path", case_files("quorum"))
def test_published_quorum_cases(path: Path) -> None:
    for case in read_cases(path):
        answer = {"committed": committed, "vote": vote}[case.command]
        try:
            actual = answer(case)
        except ValueError as error:
            actual = str(error)
        expected = case.expected.splitlines()[-1].removeprefix("<empty majority quorum>")
        if expected.startswith("error:"):
            assert actual.startswith("error:"), f"{path.name}:{case.line}"
        else:
            assert actual == expected, f"{path.name}:{case.line}"
