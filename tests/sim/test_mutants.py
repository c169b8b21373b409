"""The simulation of whole clusters can fail: rules that live in the broker and in storage, broken one at a time.

Each is found within a few seeds of a schedule that gives it a chance: which faults there are, to whom and when, is told
here; all else comes from the seed. The honest cluster gets through the same seed. Rules of the pure cores are broken in
`tests/replication/test_mutants.py` and `tests/raft/test_simulation.py`, where a life costs a hundredth.
"""

import asyncio
from dataclasses import replace
from typing import Final

import pytest
from tests.replication.mutants import let_the_last_one_lead_on
from tests.sim import mutants
from tests.sim.mutants import Mutant

from logboom.base.units import KIB
from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_faults import DISK_LOSSES, NETWORK_LANE, NODE_FAULTS
from logboom.sim.cluster_scenario import ClusterScenario
from logboom.sim.faults import Fault, Trouble
from logboom.sim.late_requests import LATE_LANE
from logboom.sim.lease_flaps import LEASES_LANE
from logboom.sim.nats_attached import FEED, SHARED
from logboom.sim.nats_faults import NATS_LANE
from logboom.sim.nats_members import MEMBERS_LANE
from logboom.sim.older_copies import OLDER_COPY_LANE
from logboom.sim.schedule import PlannedFault, Schedule

SEEDS: Final = 6
"""Within so many each is found; most of them by the first."""
_SYNC_FAILS: Final = "a sync fails"
_A_BIT_FLIPS: Final = "a bit flips"


def planned(*faults: tuple[float, str, str, float]) -> Schedule:
    """Each fault: when, to whom, what, for how long."""
    lanes = [lane for _, lane, _, _ in faults]
    return tuple(
        PlannedFault(at_s, lane, name, length_s, lanes[:number].count(lane))
        for number, (at_s, lane, name, length_s) in enumerate(faults)
    )


def everywhere(at_s: float, name: str) -> tuple[tuple[float, str, str, float], ...]:
    """The same to all three nodes at once."""
    return tuple((at_s, node, name, 0.1) for node in ("n1", "n2", "n3"))


_BASE: Final = ClusterScenario(
    beside=(),
    producers=3,
    members=0,
    producer_pause_max_s=0.1,
    in_flight_max=(1,),
    replica_lags_ms=(3_000,),
    rest_chance=0.0,
)
CUT_OFF: Final = replace(
    _BASE,
    troubled_s=8.5,
    schedule=planned((1, NETWORK_LANE, "isolate", 3), (4.5, NETWORK_LANE, "isolate", 3), (7, "n1", "kill", 1)),
)
"""One node is cut off from the others, twice; clients reach it."""
KILLED: Final = replace(
    _BASE,
    troubled_s=9.0,
    schedule=planned((1, "n1", "kill", 0.1), (3.5, "n2", "kill", 0.1), (6, "n3", "kill", 0.1), (8, "n1", "kill", 0.1)),
)
"""One after the other is killed and back at once, each before the next one: a controller that has heard of nobody yet
asks for the patience of a lease."""
BELOW: Final = replace(
    _BASE,
    troubled_s=6.0,
    stream_config={"min.insync.replicas": "3"},
    schedule=planned((2, "n3", "pause", 3.5), (4.2, "n1", "power", 3), (4.2, "n2", "power", 3)),
)
"""One stands still until it is out of the ISR, which is below the minimum then; the others lose their power."""
COUNTED: Final = replace(_BASE, beside=("counts",), producers=0, plain_producers=0, troubled_s=2.0, schedule=())
"""Nothing goes wrong, and two clients raise the same counters."""
CALM: Final = replace(
    _BASE,
    plain_producers=0,
    consumers=0,
    partitions=6,
    producer_pause_max_s=0.05,
    in_flight_max=(5,),
    replica_lags_ms=(30_000,),
    troubled_s=2.0,
    schedule=(),
)
"""Nothing goes wrong, producers have several requests under way, and who holds up a partition stays in the ISR."""
FULL_FOR_MOMENTS: Final = replace(
    CALM,
    producers=8,
    partitions=3,
    producer_pause_max_s=0.02,
    replica_lags_ms=(3_000,),
    troubled_s=10.0,
    schedule=planned(*((0.6 + 0.9 * n + 0.05 * i, f"n{1 + i}", "full", 0.2) for n in range(10) for i in range(3))),
)
"""All disks are full for a moment, again and again. Of requests that were sent together, the first may come while the
disk of the leader is full, the next behind that."""
NO_POWER: Final = replace(_BASE, troubled_s=3.0, schedule=planned(*everywhere(1, "power")))
"""The power fails everywhere."""
FLIPPED: Final = replace(_BASE, troubled_s=4.0, schedule=planned((2, "n2", _A_BIT_FLIPS, 0.1)))
"""A bit flips in the records of one."""
FLIPPED_AND_FIRST: Final = replace(
    _BASE,
    troubled_s=11.0,
    schedule=planned(
        *((1 + number, "n2", _A_BIT_FLIPS, 0.1) for number in range(4)),
        (5, "n1", "stop", 5),
        (5.5, "n3", "stop", 5),
        (6.5, "n2", "stop", 0.1),
    ),
)
"""Bits flip in the records of one; then all stop in good order, that one last, and it is back before the others."""
FILES_LOST: Final = replace(
    _BASE,
    producer_pause_max_s=0.02,
    troubled_s=10.0,
    broker_config={**_BASE.broker_config, "stream_defaults": {"segment_bytes": 16 * KIB}},
    schedule=planned((2.5, "n2", "lose-files", 2), (5, "n2", "lose-files", 2), (7.5, "n2", "lose-files", 2)),
)
"""One finds its partitions without some of their files, three times."""
FLAPPING: Final = replace(
    _BASE,
    producers=1,
    plain_producers=0,
    consumers=0,
    troubled_s=12.0,
    schedule=planned((1, LEASES_LANE, "leases", 11)),
)
"""Leases end and come back while streams are made."""
LATE: Final = replace(_BASE, producers=1, troubled_s=6.0, schedule=planned((1, LATE_LANE, "late-requests", 5)))
"""Requests to the controller come again, late, while settings change."""
PUT_BACK: Final = replace(_BASE, troubled_s=1.0, schedule=planned((0.2, OLDER_COPY_LANE, "put-back", 2.0)))
"""All are killed, and the disk of one is an older copy."""
CLOCKS_JUMP: Final = replace(
    _BASE,
    partitions=1,
    producer_pause_max_s=0.02,
    far_clocks_chance=1.0,
    troubled_s=9.0,
    schedule=planned(
        *everywhere(4, "clock"), *everywhere(5, "kill"), (7, "n1", "clock", 0.1), (7.5, "n2", "clock", 0.1)
    ),
)
"""All wall clocks are set, some of them days ahead; all brokers are killed and start again with these clocks."""
ALONE: Final = replace(
    _BASE,
    nodes=1,
    stream_config={},
    troubled_s=8.0,
    schedule=planned(*((at_s, "n1", _SYNC_FAILS, 1.0) for at_s in (1, 3, 5))),
)
"""A node without others, whose disk fails to sync for a moment, and whose power fails later."""
FULL: Final = replace(
    ALONE,
    schedule=planned(
        (1, "n1", "full", 1.0),
        (3, "n1", "full", 1.0),
        (4.5, "n1", "kill", 0.1),
        (5, "n1", "full", 0.5),
        (6.5, "n1", "kill", 0.1),
    ),
)
"""A node without others, whose disk is full now and then, and which is killed later."""
ALONE_WITHOUT_POWER: Final = replace(
    ALONE,
    partitions=6,
    producers=6,
    schedule=planned(*((at_s, "n1", "power", 0.1) for at_s in (1, 2, 3, 4, 5, 6, 7))),
)
"""A node without others, whose power fails again and again."""


SERVERS_LEAVE: Final = replace(
    _BASE,
    beside=(FEED,),
    nats_servers=(3,),
    producers=0,
    plain_producers=0,
    consumers=0,
    publishers=("plain",) * 6,
    keeps_all=True,
    troubled_s=5.0,
    schedule=planned((0.7, NATS_LANE, "nats-leave", 2), (3, NATS_LANE, "nats-leave", 2)),
)
"""One nats-server after the other leaves its cluster; brokers and publishers have time to go."""


MEMBERS_LEAVE: Final = replace(
    _BASE,
    beside=(SHARED,),
    nats_servers=(1,),
    producers=0,
    plain_producers=0,
    consumers=0,
    partitions=1,
    shared_publishers=("plain",) * 6,
    keeps_all=True,
    troubled_s=4.0,
    schedule=planned(*((0.3 + 0.25 * number, MEMBERS_LANE, "nats-member", 0.1) for number in range(14))),
)
"""One stream after the other leaves a group that shares its subjects, and joins it again."""


async def _sync_fails(trouble: Trouble) -> None:
    """Syncs fail for a moment; those after it would succeed, as they do with Linux. The power fails some time later."""
    trouble.node.device.failing = frozenset(("sync",))
    await asyncio.sleep(0.1)
    trouble.node.device.mend()
    await trouble.last()
    trouble.node.cut_power()
    await trouble.start()


@pytest.fixture(autouse=True)
def _a_disk_that_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NODE_FAULTS, _SYNC_FAILS, Fault(_sync_fails, lasts_max_s=1.0))
    monkeypatch.setitem(NODE_FAULTS, _A_BIT_FLIPS, DISK_LOSSES["flip"])


def _slow(mutant: Mutant, scenario: ClusterScenario) -> object:
    return pytest.param(mutant, scenario, marks=pytest.mark.slow)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        _slow(mutants.tell_no_divergence, CUT_OFF),
        _slow(mutants.commit_what_the_leader_has, CUT_OFF),
        _slow(mutants.ack_what_fell_below_the_minimum, BELOW),
        _slow(mutants.make_partitions_under_the_lease_of_that_moment, FLAPPING),
        _slow(mutants.believe_in_the_tail, ALONE_WITHOUT_POWER),
        _slow(mutants.cut_damage_without_a_word, FLIPPED_AND_FIRST),
        _slow(mutants.keep_damage_to_itself, FLIPPED),
        _slow(mutants.take_lost_segments_for_deleted, FILES_LOST),
        _slow(mutants.try_failed_syncs_again, ALONE),
        _slow(mutants.take_short_writes_for_whole, FULL),
        (mutants.vote_without_a_note, NO_POWER),
        _slow(mutants.forget_producers_of_leaders, KILLED),
        _slow(mutants.delete_on_the_leader_alone, replace(KILLED, beside=("trimmed",))),
        _slow(mutants.compare_no_revisions, LATE),
        _slow(let_the_last_one_lead_on, PUT_BACK),
        _slow(mutants.age_by_the_wall_clock, CLOCKS_JUMP),
        _slow(mutants.forget_the_time_at_a_start, CLOCKS_JUMP),
        (mutants.take_records_whatever_they_expect, COUNTED),
        (mutants.drop_parts_that_overtake_each_other, CALM),
        _slow(mutants.forget_what_was_refused_for_a_moment, FULL_FOR_MOMENTS),
        _slow(mutants.serve_groups_before_they_are_loaded, KILLED),
        (mutants.leave_a_nats_server_before_another_one_is_heard, SERVERS_LEAVE),
        _slow(mutants.store_what_two_nats_servers_bring, SERVERS_LEAVE),
        (mutants.forget_a_stream_that_leaves_its_group, MEMBERS_LEAVE),
        _slow(mutants.take_what_others_of_the_group_get, MEMBERS_LEAVE),
    ],
)
def test_a_broken_rule_is_found_within_a_few_seeds(mutant: Mutant, scenario: ClusterScenario) -> None:
    found_at = next((seed for seed in range(SEEDS) if _violations(mutant, scenario, seed)), None)
    assert found_at is not None, f"{SEEDS} seeds hide it"
    assert run_cluster_seed(found_at, scenario).violations == ()


def _violations(mutant: Mutant, scenario: ClusterScenario, seed: int) -> tuple[str, ...]:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        return run_cluster_seed(seed, scenario).violations
