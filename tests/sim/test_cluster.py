"""A simulated cluster under faults keeps its promises, and one that does not is found out."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from logboom.base.errors import NotLeaderError
from logboom.base.ids import Offset
from logboom.sim.administration import TASKS
from logboom.sim.client import TopicPartition
from logboom.sim.cluster import _Run, run_cluster_seed
from logboom.sim.cluster_faults import DISK_LOSSES, NETWORK_FAULTS, NODE_FAULTS
from logboom.sim.cluster_scenario import BESIDE, ClusterScenario
from logboom.sim.lease_flaps import LEASE_FAULTS
from logboom.sim.node import SimNode
from logboom.sim.schedule import PlannedFault

SEEDS = int(os.environ.get("LOGBOOM_SIM_SEEDS", "3"))
SHORT = ClusterScenario(beside=(), troubled_s=4.0, trouble_pause_max_s=2.0)
RESTLESS = replace(SHORT, rest_chance=0.0)
"""For what is over once things are as they should be: three times as many events follow where a run rests then."""
FIRST = 23
"""None of the first three rests, which takes as long as all else; in one, a disk is put back to an older copy."""


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_a_cluster_acknowledged_is_kept_whatever_goes_wrong(seed: int) -> None:
    outcome = run_cluster_seed(seed)
    assert outcome.violations == ()
    assert outcome.records_acked > 100
    assert outcome.records_final > 100, "each that was acknowledged, but for those that were deleted, as was checked"


@pytest.mark.slow
def test_deletions_tables_counters_and_observers_hold_beside_it() -> None:
    outcome = run_cluster_seed(1, replace(SHORT, beside=BESIDE))
    assert outcome.violations == ()


def test_a_new_copy_of_what_is_deleted_in_part_comes_in_sync() -> None:
    """Seed 1 with deletions never ended: the copy went to and fro between the log start and the batch that it is in."""
    outcome = run_cluster_seed(1, replace(SHORT, beside=("trimmed",), troubled_s=10.0))
    assert outcome.violations == ()


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("fault", [*NODE_FAULTS, *NETWORK_FAULTS, *DISK_LOSSES, *LEASE_FAULTS])
def test_every_fault_by_itself_is_survived_by_a_cluster(fault: str) -> None:
    outcome = run_cluster_seed(len(fault), SHORT.limited_to((fault,)))
    assert outcome.violations == ()
    assert set(outcome.faults) == {fault}
    assert outcome.records_acked > 0


@pytest.mark.slow
def test_whatever_is_done_to_a_cluster_its_records_stay() -> None:
    outcome = run_cluster_seed(2, replace(SHORT.limited_to(TASKS), troubled_s=10.0, trouble_pause_max_s=0.5))
    assert outcome.violations == ()
    assert len(outcome.faults) > len(TASKS) / 2
    assert outcome.met["replicas moved"] > 0


def test_leases_flap_in_some_runs_and_the_others_are_as_without() -> None:
    short = replace(RESTLESS, troubled_s=1.0)
    flapping, calm = (run_cluster_seed(seed, short) for seed in (9, 6))
    assert (flapping.violations, calm.violations) == ((), ())
    assert ("leases" in flapping.faults, "leases" in calm.faults) == (True, False)
    assert calm.digest == run_cluster_seed(6, replace(short, lease_faults=())).digest


@pytest.mark.slow
def test_a_disk_that_was_put_back_to_an_older_copy_costs_nothing_that_others_have() -> None:
    outcome = run_cluster_seed(0, replace(RESTLESS.limited_to(("put-back",)), troubled_s=1.0))
    assert outcome.violations == ()
    met = outcome.met
    assert met["disks put back to older copies"] == 1
    assert met["leaders chosen by their logs, all in-sync replicas having been killed"] > 0


@pytest.mark.slow
def test_a_disk_is_not_put_back_where_a_copy_lacks_a_replica() -> None:
    """Groups' offsets are made after the copy in this run: the others would wait 10 s for the replica that is missing,
    which docs/operations.md says, and count as standing still."""
    faults = ClusterScenario(lease_chance=1.0, rest_chance=1.0).limited_to(("put-back", "leases"))
    outcome = run_cluster_seed(1, replace(faults, troubled_s=6.0))
    assert outcome.violations == ()


def test_a_broker_without_its_disk_is_refused_and_another_one_takes_its_place() -> None:
    outcome = run_cluster_seed(2, replace(SHORT.limited_to(("wipe",)), trouble_pause_max_s=0.5))
    assert outcome.violations == ()
    met = outcome.met
    assert met["disks wiped"] == met["brokers with an empty disk that were refused"] == met["brokers removed"] > 0


def test_where_a_lost_disk_alone_counts_another_copy_leads_once_somebody_says_so() -> None:
    """Seed 21 of three nodes waited for the lost disk for ever: both others had died before they heard of the loss.

    Whether they do hangs on who is the controller at that moment and when its leases end, so a few seeds are tried.
    """
    faults = (("n1", "wipe", 1.0, 5.0), ("n2", "kill", 1.6, 0.5), ("n3", "kill", 1.8, 0.5))
    schedule = tuple(PlannedFault(at_s, lane, name, length_s, 0) for lane, name, at_s, length_s in faults)
    for seed in (2, 3, 4, 5):
        outcome = run_cluster_seed(seed, replace(SHORT, schedule=schedule))
        assert outcome.violations == ()
        assert "unclean elections that gave records up, and ended a run" not in outcome.met
        if "unclean elections" in outcome.met:
            return
    raise AssertionError("in none of these runs the lost disk alone counted")


@pytest.mark.slow
def test_bits_that_flip_are_found_and_healed_from_the_other_replicas() -> None:
    """Those that anybody read: the others are found later."""
    flips = replace(SHORT.limited_to(("flip",)), trouble_pause_max_s=0.5)
    outcomes = [run_cluster_seed(seed, flips) for seed in (3, 4)]
    assert [outcome.violations for outcome in outcomes] == [(), ()]
    met = sum((Counter(outcome.met) for outcome in outcomes), Counter[str]())
    assert met["bits flipped"] > 0
    assert met["damaged batches found"] > 0
    assert met["replicas made anew"] > 0


def test_the_same_seed_gives_the_same_cluster() -> None:
    first, again, other = (run_cluster_seed(seed, replace(RESTLESS, troubled_s=2.0)) for seed in (6, 6, 11))
    assert (first.digest, first.events, first.records_acked) == (again.digest, again.events, again.records_acked)
    assert first.digest != other.digest


def test_acks_of_the_leader_alone_are_found_out() -> None:
    """Acks that wait for nobody are lost with the leader, and the checks must see it.

    Consumers that wait for what is lost take most of a run: seed 5, as of November 2026, loses little.
    """
    careless = replace(
        RESTLESS.limited_to(("power",)),
        stream_config={"min.insync.replicas": "1", "logboom.flush": "none"},
        trouble_pause_max_s=0.5,
    )
    assert any(run_cluster_seed(seed, careless).violations for seed in range(5, 10))


def test_a_move_that_ends_while_copies_are_compared_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move that takes the leader away has all of its replicas in sync before it ends: the comparison asked one that
    had given its copy away, and the run ended by that (seeds 109 and 118 of a campaign with NATS)."""
    compare, moved = _Run._held_bytes, set[TopicPartition]()

    async def moved_first(run: _Run, holders: Sequence[SimNode], where: TopicPartition, end: Offset) -> list[bytes]:
        if where not in moved and len(holders) == 3:
            moved.add(where)
            await run._operator.move({(where.stream, where.partition): [1, 2]})
            while any(holds(node, where) for node in holders if node.name == "n3"):
                await asyncio.sleep(0.05)
        return await compare(run, holders, where, end)

    monkeypatch.setattr(_Run, "_held_bytes", moved_first)
    outcome = run_cluster_seed(3, replace(RESTLESS, troubled_s=1.0, schedule=(), lease_chance=0.0))
    assert outcome.violations == ()
    assert moved


def holds(node: SimNode, where: TopicPartition) -> bool:
    assert node.broker is not None
    try:
        node.broker.replicas.find(where.stream, where.partition)
    except NotLeaderError:
        return False
    return True
