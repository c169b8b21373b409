"""`logboom bench fanout|idle|restart`, short: they start a broker of their own, measure it, and leave nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import run_logboom
from tests.support.waiting import WAIT_S


def bench(directory: Path, *arguments: str) -> Any:
    """The result of one run."""
    command = ["bench", *arguments, "--json", "--data", str(directory), "--out", str(directory / "out")]
    done = run_logboom(command, timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert [path.name for path in directory.iterdir()] == ["out"]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.in_turn(4)
def test_fanout(tmp_path: Path) -> None:
    result = bench(
        tmp_path, "fanout", "--consumers=20", "--stream-mb=1", "--total-mb=3", "--tail-seconds=0.5", "--rounds=1"
    )
    for way in ("catching_up", "tailing"):
        costs = result[way]
        assert len(costs["one"]) == len(costs["many"]) == 1
        assert all(run["mb"] > 0 for run in costs["one"] + costs["many"])
    assert all(run["mb"] >= 18 for run in result["catching_up"]["many"])


@pytest.mark.in_turn(4)
def test_idle(tmp_path: Path) -> None:
    result = bench(tmp_path, "idle", "--partitions=5", "--connections=20", "--trickle-partitions=300", "--seconds=0.5")
    assert result["start_s"] > 0
    steps = [result[name] for name in ("empty", "partitions", "connections", "trickle", "trickle_followed")]
    assert all(step["memory_mb"] > 10 and step["threads"] > 1 for step in steps)


@pytest.mark.in_turn(4)
def test_collector(tmp_path: Path) -> None:
    result = bench(tmp_path, "collector", "--line-bytes=100", "--megabytes=1", "--rounds=1")
    for one in result["lines"]["100"].values():
        assert one["mb_per_s"] > 0
        assert len(one["rounds"]) == 1


@pytest.mark.slow
def test_restart(tmp_path: Path) -> None:
    result = bench(tmp_path, "restart", "--gigabytes=0.02", "--partitions=3", "--kills=1")
    assert result["bytes"] >= 20_000_000
    assert result["records_after"] >= result["records_acked_before"] > 0
    assert len(result["after_kill_s"]) == 1


@pytest.mark.in_turn(4)
def test_compact(tmp_path: Path) -> None:
    shape = ("--keys=2000", "--megabytes=6", "--segment-mib=1", "--rounds=1", "--peers=logboom")
    result = bench(tmp_path, "compact", *shape)
    assert result["left_out"] == {}
    for brokers in result["medians"].values():
        one = brokers["logboom"]
        assert one["mb"] > 6 > one["left_mb"] > 1.5
        assert one["mb_per_s"] > 0 < one["mb_per_cpu_s"]


@pytest.mark.slow
def test_compact_beside(tmp_path: Path) -> None:
    shape = ("--beside", "--seconds=0.5", "--megabytes=600", "--rounds=1", "--peers=logboom")
    result = bench(tmp_path, "compact", *shape)
    assert result["ratios"].keys() == {"produce", "produce_in_turns", "consume", "latency"}
    for brokers in result["samples"].values():
        assert all(one["compacted_mb_per_s"] > 0 for one in brokers["logboom"]["with"])
