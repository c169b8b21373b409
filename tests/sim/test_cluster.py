"""A simulated cluster under faults keeps its promises, and one that does not is found out."""

import os
from dataclasses import replace

import pytest

from logboom.sim.cluster import ClusterScenario, run_cluster_seed
from logboom.sim.cluster_faults import NETWORK_FAULTS, NODE_FAULTS

SEEDS = int(os.environ.get("LOGBOOM_SIM_SEEDS", "3"))
SHORT = ClusterScenario(troubled_s=4.0, trouble_pause_max_s=2.0)
FIRST = 2


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_a_cluster_acknowledged_is_kept_whatever_goes_wrong(seed: int) -> None:
    outcome = run_cluster_seed(seed)
    assert outcome.violations == ()
    assert outcome.records_acked > 100
    assert outcome.records_final >= outcome.records_acked


@pytest.mark.parametrize("fault", [*NODE_FAULTS, *NETWORK_FAULTS])
def test_every_fault_by_itself_is_survived_by_a_cluster(fault: str) -> None:
    scenario = replace(
        SHORT,
        node_faults=tuple(name for name in NODE_FAULTS if name == fault),
        network_faults=tuple(name for name in NETWORK_FAULTS if name == fault),
    )
    outcome = run_cluster_seed(len(fault), scenario)
    assert outcome.violations == ()
    assert set(outcome.faults) == {fault}
    assert outcome.records_acked > 0


def test_the_same_seed_gives_the_same_cluster() -> None:
    first, again, other = (run_cluster_seed(seed, replace(SHORT, troubled_s=2.0)) for seed in (11, 11, 12))
    assert (first.digest, first.events, first.records_acked) == (again.digest, again.events, again.records_acked)
    assert first.digest != other.digest


def test_acks_of_the_leader_alone_are_found_out() -> None:
    """Acks that wait for nobody are lost with the leader, and the checks must see it."""
    careless = replace(
        SHORT,
        stream_config={"min.insync.replicas": "1", "logboom.flush": "none"},
        node_faults=("power",),
        network_faults=(),
        trouble_pause_max_s=0.5,
    )
    assert any(run_cluster_seed(seed, careless).violations for seed in range(5))
