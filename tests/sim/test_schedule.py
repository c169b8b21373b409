"""A run is planned before it begins, can be had again from its plan, and with fewer faults."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from logboom.sim.campaign import Job, Totals, run_all, run_job, shrunk
from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_scenario import ClusterScenario
from logboom.sim.faults import FAULTS
from logboom.sim.late_requests import LATE_LANE
from logboom.sim.scenario import Scenario, run_seed
from logboom.sim.schedule import PlannedFault, Replay, Schedule, ScheduleError, plan
from logboom.sim.shrinking import fewest, kind_of


def faults(*numbers: int) -> Schedule:
    return tuple(PlannedFault(float(number), "n1", "kill", 0.0, number) for number in numbers)


def for_ever() -> bool:
    return True


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_is_in_order_within_its_time_and_its_lengths() -> None:
    planned = plan(Random(1), "n1", FAULTS, 300.0, 2.0)
    assert len(planned) > 30
    assert [one.number for one in planned] == list(range(len(planned)))
    assert all(0 <= one.length_s <= FAULTS[one.name].lasts_max_s for one in planned)
    assert all(after.at_s >= one.at_s + one.length_s for one, after in pairwise(planned))
    assert planned[-1].at_s < 300
    assert {one.name for one in planned} == set(FAULTS)
    assert plan(Random(1), "n1", {}, 300.0, 2.0) == ()


def test_stretched_faults_last_longer_and_some_as_long_as_usual() -> None:
    planned = plan(Random(1), "n1", FAULTS, 9_000.0, 60.0, stretch=30)
    lasting = [(one.length_s, FAULTS[one.name].lasts_max_s) for one in planned if FAULTS[one.name].lasts_max_s]
    assert all(length_s <= 30 * usual_max_s for length_s, usual_max_s in lasting)
    longer = sum(length_s > usual_max_s for length_s, usual_max_s in lasting)
    assert len(lasting) / 4 < longer < len(lasting) * 3 / 4
    assert plan(Random(1), "n1", FAULTS, 300.0, 2.0, stretch=1) == plan(Random(1), "n1", FAULTS, 300.0, 2.0)


def test_a_run_of_one_node_is_the_same_from_its_plan_alone() -> None:
    first = run_seed(5, Scenario(troubled_s=1.0, trouble_pause_max_s=0.3, faults=("cut", "kill")))
    again = run_seed(5, Scenario(troubled_s=1.0, schedule=first.schedule))
    assert len(first.schedule) > 1
    assert (again.digest, again.faults) == (first.digest, first.faults)
    part = run_seed(5, Scenario(troubled_s=1.0, schedule=first.schedule[1:2]))
    assert part.faults == {first.schedule[1].name: 1}
    assert part.digest != first.digest


def test_a_stretched_run_is_the_same_from_its_plan_in_a_file() -> None:
    usual = ClusterScenario(troubled_s=20.0, beside=(), partitions=1).limited_to(("kill", "pause"))
    assert usual.stretched(1) is usual
    first = run_cluster_seed(8, usual.stretched(30))
    assert first.violations == ()
    assert first.schedule
    replay = Replay.from_json(json.loads(json.dumps(Replay(8, 3, 20.0, first.schedule, 30.0).as_json())))
    again = run_cluster_seed(8, replace(usual.stretched(replay.stretch), schedule=replay.faults))
    assert (again.digest, again.faults) == (first.digest, first.faults)


@pytest.mark.in_turn(2)
def test_a_run_of_a_cluster_is_the_same_from_its_plan_in_a_file() -> None:
    first = run_cluster_seed(29, ClusterScenario(troubled_s=1.0))
    replay = Replay.from_json(json.loads(json.dumps(Replay(29, 3, 1.0, first.schedule).as_json())))
    again = run_cluster_seed(replay.seed, ClusterScenario(troubled_s=replay.troubled_s, schedule=replay.faults))
    assert {one.lane for one in first.schedule} >= {"n1", "n2", "n3", "network", "operator", LATE_LANE}
    assert (again.digest, again.faults) == (first.digest, first.faults)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "'faults' is missing"),
        ({"faults": [{"at_s": 1.0}]}, "'lane' is missing"),
        ({"faults": [], "seed": "x", "nodes": 3, "troubled_s": 1}, "invalid literal"),
        ([], "list indices"),
    ],
)
def test_a_file_that_holds_no_schedule_is_refused(value: object, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        Replay.from_json(value)


# --- shrinking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [(), (3,), (0, 15), (2, 7, 8), tuple(range(16))])
def test_the_fewest_are_those_that_are_needed(needed: tuple[int, ...]) -> None:
    def fails(part: Schedule) -> bool:
        return set(needed) <= {one.number for one in part}

    assert fewest(faults(*range(16)), fails, for_ever) == faults(*needed)


def test_any_schedule_that_is_left_fails_and_needs_each_fault() -> None:
    """Also where more than one set of faults does it."""
    for seed in range(50):
        chance = Random(seed)
        sets = [set(chance.sample(range(20), chance.randint(1, 6))) for _ in range(3)]

        def fails(part: Schedule, sets: list[set[int]] = sets) -> bool:
            return any(one <= {fault.number for fault in part} for one in sets)

        found = fewest(faults(*range(20)), fails, for_ever)
        assert fails(found)
        assert not any(fails(found[:at] + found[at + 1 :]) for at in range(len(found)))


def test_a_search_that_must_end_gives_what_it_has() -> None:
    asked = iter([True] * 4 + [False] * 100)
    found = fewest(faults(*range(16)), lambda part: faults(5)[0] in part, lambda: next(asked))
    assert faults(5)[0] in found
    assert 1 < len(found) < 16


def test_runs_that_broke_the_same_are_known_by_their_words() -> None:
    assert kind_of(["lost write in s-0: 3 was read"]) == kind_of(["lost write in s-1: 7 was acknowledged", "more"])
    assert kind_of(["lost write in s-0: 3"]) != kind_of(["duplicate: 3"])
    assert kind_of([]) == ""


# --- campaigns -------------------------------------------------------------------------------------------------------

JOB = Job(1, 0.2, ("cut", "kill"))


def test_seeds_in_processes_of_their_own_are_the_same() -> None:
    alone = {one.seed: one.digest for one in run_all(JOB, range(2), 1)}
    beside = {one.seed: one.digest for one in run_all(JOB, range(2), 2)}
    assert beside == alone
    assert list(alone) == [0, 1]


def test_totals_name_what_never_happened() -> None:
    totals = Totals(Job(1, 0.5, ("cut", "full")))
    outcome = run_job(JOB, 1)
    totals.add(replace(outcome, faults={"cut": 2}, met={"connections broken": 3}))
    totals.add(replace(outcome, faults={"cut": 1}, met={}, violations=("lost",), seed=9))
    assert (totals.seeds, totals.failed, totals.faults["cut"]) == (2, [9], 3)
    assert totals.hours == pytest.approx(outcome.simulated_s / 1_800)
    assert "full" in totals.never
    assert "cut" not in totals.never
    assert "errors of the disk (EIO)" in totals.never
    assert "connections broken" not in totals.never
    assert totals.as_json()["met"]["connections broken"] == 3


def test_a_failure_is_shrunk_to_the_fault_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = replace(run_job(JOB, 1), schedule=faults(*range(9)), violations=("lost write in s-1: 7",))
    culprit = failed.schedule[-1]

    def fails_by_culprit(job: Job, seed: int) -> object:
        assert job.schedule is not None
        return replace(failed, violations=("lost write in s-2: 9",) if culprit in job.schedule else ())

    patch: Callable[[str, object], None] = monkeypatch.setattr
    patch("logboom.sim.campaign.run_job", fails_by_culprit)
    assert shrunk(JOB, failed, for_ever).faults == (culprit,)
