"""Observers in a simulated cluster under faults show what is committed, and have it all in the end."""

from dataclasses import replace

import pytest

from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_scenario import ClusterScenario

SHORT = ClusterScenario(observers=1, beside=(), troubled_s=4.0, trouble_pause_max_s=2.0, tasks=())


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_who_reads_from_observers_sees_what_all_see(seed: int) -> None:
    outcome = run_cluster_seed(seed, replace(SHORT, troubled_s=2.0 * seed))
    assert outcome.violations == ()
    assert outcome.nodes == 4
    assert outcome.records_acked > 0


@pytest.mark.slow
def test_observers_that_are_cut_off_and_lose_their_power_come_back_whole() -> None:
    scenario = replace(SHORT, observers=2, node_faults=("power",), disk_losses=(), trouble_pause_max_s=1.0)
    assert run_cluster_seed(7, scenario).violations == ()
