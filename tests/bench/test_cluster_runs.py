"""`logboom bench processes|partitions|failover|idle --nodes`, short: they start their own brokers and leave nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import run_logboom

from logboom.bench.compare import CLUSTERS, CONTESTANTS, CompareLoad
from logboom.bench.compare.outcome import goals
from logboom.bench.compare.run import Outcome


def bench(directory: Path, *arguments: str) -> Any:
    """The result of one run."""
    command = ["bench", *arguments, "--json", "--data", str(directory), "--out", str(directory / "out")]
    done = run_logboom(command, timeout_s=300)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [path.name for path in directory.iterdir()] == ["out"]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_an_idle_cluster(tmp_path: Path) -> None:
    result = bench(tmp_path, "idle", "--nodes=3", "--partitions=5", "--seconds=0.5")
    assert [len(result[step]) for step in ("empty", "partitions")] == [3, 3]
    assert all(one["memory_mb"] > 10 and one["threads"] > 1 for one in result["empty"] + result["partitions"])


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    result = bench(tmp_path, "processes", "--seconds=0.5", "--rounds=1", "--partitions=4")
    assert set(result["ratios"]) == {"100", "1000"}
    for both in result["samples"].values():
        assert both["one"][0]["records_per_s"] > 0 < both["several"][0]["cpu_s_per_million"]


@pytest.mark.slow
def test_partitions(tmp_path: Path) -> None:
    result = bench(tmp_path, "partitions", "200")
    assert 0 < result["created_s"] <= result["created_in_sync_s"]
    for how in ("stop", "kill"):
        assert 0 < result[f"after_{how}"]["served_s"] <= result[f"after_{how}"]["in_sync_s"]


@pytest.mark.slow
def test_failover(tmp_path: Path) -> None:
    result = bench(tmp_path, "failover", "--deaths=1", "--partitions=6")
    assert result["leader_gap_s"][0] > 0 < result["controller_gap_s"][0]


def test_goals_of_a_cluster_are_told_for_what_was_measured() -> None:
    def sample(rate: float, cpu: float) -> list[dict[str, Any]]:
        return [{"records_per_s": rate, "cpu_s_per_million": cpu}]

    samples = {"produce-100": dict(zip(CLUSTERS, (sample(3, 8), sample(9, 2), sample(2, 10)), strict=True))}
    versions = {CONTESTANTS[name].server: "1" for name in CLUSTERS}
    told = goals(Outcome(CompareLoad(CLUSTERS), {"produce-100": "a title"}, samples, {}, {}, versions, {}))
    assert [(each["ratio"], each["held"]) for each in told] == [(1.5, True), (0.8, True), (4.0, False)]
