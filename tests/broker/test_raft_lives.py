"""The driver of the consensus group keeps what it promises, whatever goes wrong: see `raft_lives`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec
import pytest
from tests.broker.raft_lives import Life

from logboom.broker.raft import ProposalLostError, RaftGroup, StateMachine
from logboom.broker.raft.hard_state import HardStateFile
from logboom.broker.raft.pending import PendingProposals, PendingReads, Waiter, answer
from logboom.broker.raft.snapshots import Snapshots
from logboom.broker.raft.writer import Writer
from logboom.raft import Entry, HardState, Index, NodeId, Persist, Role, Snapshot, Term

SEEDS = range(5, 8)
"""Together everything that is asked for below happens in them."""


def test_a_group_keeps_what_it_answered_whatever_goes_wrong() -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            happened.update(Life(seed).run(25))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    for needed in ("acked", "refused", "unknown", "reads", "restored", "members changed", "failed", "served"):
        assert happened[needed], (needed, happened)


def _persisted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is staged counts as durable."""

    def stage(self: Writer, persist: Persist) -> None:
        self._files.stage(persist)
        self._flusher.enqueue(self, 1)
        self._events.persisted(persist.number)

    monkeypatch.setattr(Writer, "_stage", stage)


def _answers_any_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal counts as applied once anything is applied at its index."""

    def applied(self: PendingProposals, entry: Entry) -> None:
        while self._waiting and self._waiting[0][0].index <= entry.index:
            answer(self._waiting.popleft()[1], entry.index)

    monkeypatch.setattr(PendingProposals, "applied", applied)


def _confirms_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: PendingReads, waiter: Waiter, *, urgent: bool) -> None:
        answer(waiter, Index(0))

    monkeypatch.setattr(PendingReads, "add", add)


def _forgets_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hard state gets into the page cache and no further."""

    def write(self: HardStateFile, state: HardState) -> None:
        self.state = state

    monkeypatch.setattr(HardStateFile, "write", write)


def _snapshots_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot claims one entry more than it has."""
    take = Snapshots.take

    def ahead(self: Snapshots, point: Snapshot, machine: StateMachine, now_ms: int) -> Snapshot | None:
        taken = take(self, point, machine, now_ms)
        return None if taken is None else msgspec.structs.replace(taken, index=Index(taken.index + 1))

    monkeypatch.setattr(Snapshots, "take", ahead)


def _serves_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is applied, a leader serves."""
    changed = RaftGroup._role_changed

    def role_changed(self: RaftGroup, role: Role, lead: NodeId, term: Term) -> None:
        changed(self, role, lead, term)
        if role is Role.LEADER:
            self._announce(replace(self.leadership, serving=True))

    monkeypatch.setattr(RaftGroup, "_role_changed", role_changed)


def _calls_unknown_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits when the role is lost is told that nothing will be changed."""
    changed = RaftGroup._role_changed

    def role_changed(self: RaftGroup, role: Role, lead: NodeId, term: Term) -> None:
        changed(self, role, lead, term)
        self._proposals.end(ProposalLostError("not any more"))

    monkeypatch.setattr(RaftGroup, "_role_changed", role_changed)


BROKEN: Final[tuple[Callable[[pytest.MonkeyPatch], None], ...]] = (
    _persisted_at_once,
    _answers_any_term,
    _confirms_without_asking,
    _forgets_votes,
    _snapshots_ahead,
    _serves_early,
    _calls_unknown_lost,
)
"""The first seed finds each, as of November 2026."""


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("break_it", BROKEN, ids=lambda each: each.__name__.strip("_"))
def test_a_broken_driver_is_found_out(break_it: Callable[[pytest.MonkeyPatch], None]) -> None:
    for seed in range(40):
        with pytest.MonkeyPatch.context() as monkeypatch:
            break_it(monkeypatch)
            try:
                Life(seed).run(20)
            except Exception:  # noqa: BLE001 - a violation, or an assertion of the core that something is not as it must be
                return
    pytest.fail("nothing was found wrong")
