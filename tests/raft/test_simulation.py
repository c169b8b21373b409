"""Groups of nodes live through losses, crashes and changes of members; and broken cores do not get through that.

`LOGBOOM_RAFT_SEEDS=A..B` runs other seeds, `LOGBOOM_RAFT_STEPS` longer lives.
"""

import os
from collections import Counter
from collections.abc import Callable

import pytest
from tests.raft.simulation import ELECTION_TICKS, TICK_MS, Options, lives

from logboom.raft import Entry, EntryId, Index, Message, RaftError, Role
from logboom.raft.core import Core
from logboom.raft.leader import Leader
from logboom.raft.log import RaftLog
from logboom.raft.progress import Progress
from logboom.raft.proposals import Proposals
from logboom.raft.quorum import JointConfig, majority_committed_index
from logboom.raft.raft import Raft

FIRST, _, BEHIND = os.environ.get("LOGBOOM_RAFT_SEEDS", "0..8").partition("..")
SEEDS = range(int(FIRST), int(BEHIND))
STEPS = int(os.environ.get("LOGBOOM_RAFT_STEPS", "1500"))
FIXED_MEMBERS = Options(members=3, conf_changes=0)
FIVE_MEMBERS = Options(members=5, conf_changes=0, crashes=1)
CHANGING_MEMBERS = Options(members=3)
LEADERS_THAT_STAY = Options(members=5, conf_changes=0, cuts=0.4, heals=0.2, check_quorum=False)


@pytest.mark.parametrize("options", [FIXED_MEMBERS, FIVE_MEMBERS, CHANGING_MEMBERS], ids=["three", "five", "changing"])
def test_what_raft_promises_holds_at_every_step(options: Options) -> None:
    happened: Counter[str] = Counter()
    for cluster in lives(SEEDS, STEPS, options):
        happened.update(cluster.happened)
        happened["committed"] += cluster.committed_index
        happened["leaders"] += len(cluster.leader_of)
    expected = {"crashes", "cuts", "lost", "committed", "snapshots", "Restore", "ReadReady", "DiscardLog"}
    if options is CHANGING_MEMBERS:
        expected |= {"ConfigurationChanged", "Ignored"}
    assert expected - happened.keys() == set(), "a life without troubles proves nothing"
    assert happened["leaders"] > len(SEEDS)
    assert happened["committed"] > 10 * len(SEEDS)


@pytest.mark.parametrize("options", [FIXED_MEMBERS, CHANGING_MEMBERS], ids=["three", "changing"])
def test_a_mended_group_elects_a_leader_and_applies_what_it_is_given(options: Options) -> None:
    for cluster in lives(SEEDS, STEPS // 2, options):
        cluster.settle(20 * ELECTION_TICKS * TICK_MS)
        leader = cluster.leader()
        assert leader is not None, "nobody leads"
        assert cluster.node_of(leader).status.soft_state.role is Role.LEADER
        cluster.propose_at(leader)
        cluster.settle(4 * ELECTION_TICKS * TICK_MS)
        config = cluster.node_of(leader).status.config
        for node_id in config.voters.ids | config.learners:
            assert cluster.members[node_id].data == leader.data
        assert leader.data[-1] == b"p%d" % cluster.proposals


def votes_twice(raft: Raft, message: Message) -> None:
    if raft.core.role is not Role.LEADER:
        raft.core.vote = message.sender
    honest(Raft, "_vote")(raft, message)


def says_before_it_is_durable(core: Core, message: Message) -> None:
    honest(Core, "send")(core, message)
    others = [each for each in core.messages_after_append if each.to != core.node_id]
    core.messages += others
    core.messages_after_append = [each for each in core.messages_after_append if each.to == core.node_id]


def counts_itself_before_it_is_durable(leader: Leader, entries: tuple[Entry, ...]) -> None:
    honest(Leader, "_propose")(leader, entries)
    leader._core.tracker.progress[leader._core.node_id].match_index = leader._core.log.last_index()


def half_is_a_majority(config: JointConfig, acked: Callable[..., Index | None]) -> Index:
    indexes = sorted((acked(voter) or Index(0) for voter in config.incoming), reverse=True)
    return indexes[max(0, len(indexes) // 2 - 1)]


def outgoing_majority_is_not_asked(config: JointConfig, acked: Callable[..., Index | None]) -> Index:
    return majority_committed_index(config.incoming, acked)


def elects_anybody(log: RaftLog, theirs: EntryId) -> bool:
    return True


def cuts_off_at_every_append(
    log: RaftLog, before: EntryId, entries: tuple[Entry, ...], committed: Index
) -> Index | None:
    if not log.matches(before):
        return None
    last = Index(before.index + len(entries))
    if entries:
        log.unstable.truncate_and_append(entries)
    log.commit_to(min(committed, last))
    return last


def takes_any_entries(log: RaftLog, before: EntryId) -> bool:
    return log.last_index() >= before.index


def takes_what_was_sent_for_acknowledged(progress: Progress, *args: object) -> None:
    honest(Progress, "sent_entries")(progress, *args)
    progress.match_index = Index(progress.next_index - 1)


def answers_reads_without_asking(leader: Leader, request: Message) -> None:
    leader._answer_read(request, leader._core.log.committed)


def several_changes_at_once(proposals: Proposals, change: object) -> None:
    return None


HONEST: dict[tuple[type, str], Callable[..., object]] = {}


def honest(owner: type, name: str) -> Callable[..., object]:
    return HONEST[owner, name]


BROKEN = [
    (votes_twice, Raft, "_vote", FIXED_MEMBERS),
    (says_before_it_is_durable, Core, "send", FIXED_MEMBERS),
    (counts_itself_before_it_is_durable, Leader, "_propose", FIXED_MEMBERS),
    (half_is_a_majority, JointConfig, "committed_index", FIXED_MEMBERS),
    (outgoing_majority_is_not_asked, JointConfig, "committed_index", CHANGING_MEMBERS),
    (elects_anybody, RaftLog, "is_up_to_date", FIXED_MEMBERS),
    (cuts_off_at_every_append, RaftLog, "maybe_append", FIXED_MEMBERS),
    (takes_any_entries, RaftLog, "matches", FIXED_MEMBERS),
    (takes_what_was_sent_for_acknowledged, Progress, "sent_entries", FIXED_MEMBERS),
    (answers_reads_without_asking, Leader, "_confirm_read", LEADERS_THAT_STAY),
    (several_changes_at_once, Proposals, "_refusal", CHANGING_MEMBERS),
]
SEEDS_TO_FIND = 40
STEPS_TO_FIND = 3000


@pytest.mark.parametrize(("broken", "owner", "name", "options"), BROKEN, ids=[each[0].__name__ for each in BROKEN])
def test_a_broken_core_is_found(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[..., object], owner: type, name: str, options: Options
) -> None:
    monkeypatch.setitem(HONEST, (owner, name), getattr(owner, name))
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, RaftError)):
        for _ in lives(range(SEEDS_TO_FIND), STEPS_TO_FIND, options):
            pass
