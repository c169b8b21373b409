"""`logboom bench goals`: every goal is told with what was got, and said to hold or not."""

from pathlib import Path

import pytest

from logboom.bench.goals import Goal, GoalsLoad, run_goals


@pytest.mark.parametrize(
    ("got", "wanted", "at_most", "held"),
    [(0.6, 0.6, False, True), (0.59, 0.6, False, False), (8.0, 8, True, True), (8.1, 8, True, False)],
)
def test_a_goal_holds_from_its_figure_on(got: float, wanted: float, at_most: bool, held: bool) -> None:
    goal = Goal("a goal", got, wanted, "ms", at_most)
    assert goal.held is held
    assert goal.row()[-1] == ("yes" if held else "NO")


@pytest.mark.slow  # each of the loads is in test_load and test_node_runs
def test_every_goal_is_told(tmp_path: Path) -> None:
    goals = list(run_goals(GoalsLoad(0.5, 1, 0.5, 0.5), tmp_path, lambda _: None))
    words = " / ".join(goal.name for goal in goals)
    for each in ("produce 100 B", "consume", "32 connections", "256 B", "1,048,000 B", "start", "memory", "core"):
        assert each in words
    assert all(goal.got >= 0 for goal in goals)
    assert list(tmp_path.iterdir()) == []
