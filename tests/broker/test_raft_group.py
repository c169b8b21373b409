"""Groups of nodes on simulated disks: power failures take back what was not synced, and Raft keeps its promises."""

from collections import Counter
from random import Random

import pytest
from tests.raft.simulation import Cluster, Files, Member, Options, ViolationError

from logboom.broker.raft import RaftFiles
from logboom.raft import Index, NodeId, Persist, Snapshot, Stored
from logboom.sim.disk import SimDisk

DIRECTORY = "raft"


class DiskFiles(Files):
    """The real files of a member. `stored` is what they have reported as durable."""

    def __init__(self, stored: Stored) -> None:
        super().__init__(stored)
        self.disk = SimDisk()
        RaftFiles.create(self.disk, DIRECTORY, stored)
        self._open()

    def _open(self) -> None:
        found = RaftFiles.open(self.disk, DIRECTORY, lambda each: None)
        assert found is not None
        self._files, self.stored = found

    def write(self, persist: Persist) -> None:
        self._files.write(persist)
        super().write(persist)

    def take_snapshot(self, snapshot: Snapshot) -> None:
        self._files.take_snapshot(snapshot)
        super().take_snapshot(snapshot)

    def discard(self, index: Index) -> None:
        self._files.discard(index)
        super().discard(index)

    def fail(self, random: Random) -> None:
        """The machine fails and starts again. What was durable must be there."""
        before = self.stored
        self.disk = self.disk.power_cut(random)
        self._open()
        promised = [entry for entry in before.entries if entry not in self.stored.entries]
        hard = (before.hard_state.term, before.hard_state.vote)
        if promised or (self.stored.hard_state.term, self.stored.hard_state.vote) != hard:
            raise ViolationError(f"{before} became {self.stored}")
        if self.stored.snapshot != before.snapshot:
            raise ViolationError(f"{before.snapshot} became {self.stored.snapshot}")


class ClusterOnDisks(Cluster):
    """Members with files; a crash is one of the machine."""

    def new_files(self, stored: Stored) -> Files:
        return DiskFiles(stored)

    def crash(self, member: Member) -> None:
        super().crash(member)
        assert isinstance(member.files, DiskFiles)
        member.files.fail(self.random)
        self.happened["power failures"] += 1


@pytest.mark.parametrize(
    "options", [Options(conf_changes=0, crashes=1.5), Options(crashes=1)], ids=["three", "changing"]
)
def test_nothing_that_was_said_is_lost_by_power_failures(options: Options) -> None:
    happened: Counter[str] = Counter()
    for seed in range(8):
        cluster = ClusterOnDisks(seed, options)
        try:
            cluster.run(1500)
            cluster.settle(2500)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        happened.update(cluster.happened)
        assert cluster.leader() is not None
    assert happened["power failures"] > 30
    assert happened["DiscardLog"] > 0
    assert happened["Apply"] > 100


def test_a_wiped_disk_under_an_old_broker_id_is_a_stranger() -> None:
    """Its old id is never used again: it starts with nothing under another one, and the group does not listen to it."""
    cluster = ClusterOnDisks(1, Options(loss=0, repeats=0, crashes=0, cuts=0, conf_changes=0))
    cluster.settle(1000)
    wiped = Member(NodeId(9), cluster.new_files(Stored()))
    cluster._start(wiped)
    before = cluster.leader()
    assert before is not None
    term = cluster.node_of(before).status.hard_state.term
    cluster.settle(2000)
    assert cluster.node_of(wiped).status.hard_state.term == 0
    leader = cluster.leader()
    assert leader is before
    assert cluster.node_of(leader).status.hard_state.term == term
