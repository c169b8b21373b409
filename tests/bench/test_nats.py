"""`logboom bench nats`: what is told adds up; a short run stores what was published."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import run_logboom
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.bench.histogram import histogram_of, summary
from logboom.bench.nats import NatsLoad
from logboom.bench.nats.outcome import as_markdown, goals, ratio
from logboom.bench.nats.run import NatsOutcome
from logboom.bench.servers import UnavailableError
from logboom.bench.servers.nats import load_program, nats_server

MACHINE: dict[str, object] = {"time": "now", "cpu": "x", "cores": 2, "memory_gib": 1, "kernel": "6"}


def rates(*values: float) -> list[dict[str, Any]]:
    return [{"records_per_s": value, "mb_per_s": value / 10} for value in values]


def latencies(*micros: int) -> dict[str, Any]:
    return summary(histogram_of(micros))


def outcome_of(samples: dict[str, dict[str, list[dict[str, Any]]]]) -> NatsOutcome:
    return NatsOutcome(NatsLoad(), dict.fromkeys(samples, "a title"), samples)


def test_a_ratio_is_taken_within_each_round() -> None:
    outcome = outcome_of({"plain-100": {"logboom": rates(6, 2, 2), "reader": rates(3, 1, 4)}})
    assert ratio(outcome, "plain-100", "records_per_s", "reader") == 2.0
    assert ratio(outcome, "plain-100", "records_per_s", "jetstream") is None


def test_goals_are_decided_by_what_was_measured() -> None:
    outcome = outcome_of(
        {
            "plain-100": {"logboom": rates(300_000), "reader": rates(400_000)},
            "acked-100-4000": {"logboom": rates(90), "jetstream": rates(100), "jetstream-always": rates(3)},
            "sync-100": {"logboom": [{"ack": latencies(890), "ping": latencies(100), "fdatasync": latencies(350)}]},
        }
    )
    assert [each.held for each in goals(outcome)] == [True, False, True, False, True]


def test_the_table_names_who_failed_or_was_left_out() -> None:
    sync = {"ack": latencies(900), "ping": latencies(100), "fdatasync": latencies(350)}
    outcome = outcome_of({"plain-100": {"logboom": rates(2_000)}, "sync-100": {"logboom": [sync]}})
    outcome.failures["plain-100"] = {"jetstream": "it broke"}
    outcome.left_out["nats-py"] = "not here"
    text = as_markdown(outcome, MACHINE)
    assert "| JetStream R1, no fsync | failed: it broke" in text
    assert "| Python, nats-py, does nothing | left out | not here |" in text
    assert "| Logboom, fsync | 0.9 / 0.9 / 0.9 |" in text


@pytest.mark.slow
def test_a_short_run(tmp_path: Path) -> None:
    with skipped_on(UnavailableError):
        nats_server()
        load_program()
    command = ["bench", "nats", "--rounds=1", "--seconds=0.3", "--message-bytes=100", "--window=1000", "--json"]
    done = run_logboom(
        [*command, "--peers=logboom,jetstream,reader", "--data", str(tmp_path), "--out", str(tmp_path / "out")],
        timeout_s=WAIT_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["failures"] == {}
    assert result["samples"]["plain-100"].keys() == {"logboom", "jetstream", "reader"}
    assert result["samples"]["acked-100-1000"].keys() == {"logboom", "jetstream", "reader"}
    assert result["samples"]["sync-100"].keys() == {"logboom", "jetstream", "reader"}
    (taken,) = result["samples"]["plain-100"]["logboom"]
    assert taken["records"] > 0 < taken["broker_cpu_s_per_million"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    files = {path.name for path in Path(result["folder"]).iterdir()}
    assert files == {"result.json", "table.md", "rates.png", "cpu.png", "sync.png"}


@pytest.mark.slow
def test_attached_streams(tmp_path: Path) -> None:
    with skipped_on(UnavailableError):
        nats_server()
        load_program()
    command = ["bench", "nats", "--streams=20", "--rounds=1", "--seconds=0.5", "--json"]
    done = run_logboom([*command, "--data", str(tmp_path), "--out", str(tmp_path / "out")], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr[-3_000:]
    result = json.loads(done.stdout.splitlines()[-1])
    (start,) = result["starts"]
    assert start["subscribed_s"] > 0
    assert start["cpu_s"] > 0
    assert result["idle_attached"]["broker_memory_mb"] > 10


@pytest.mark.slow
def test_three_copies(tmp_path: Path) -> None:
    with skipped_on(UnavailableError):
        nats_server()
        load_program()
    command = ["bench", "nats", "--rounds=1", "--seconds=0.3", "--message-bytes=100", "--window=1000", "--json"]
    done = run_logboom(
        [*command, "--only=acked", "--peers=logboom-r3", "--data", str(tmp_path), "--out", str(tmp_path / "out")],
        timeout_s=WAIT_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    (taken,) = json.loads(done.stdout.splitlines()[-1])["samples"]["acked-100-1000"]["logboom-r3"]
    assert taken["records"] > 0 < taken["broker_cpu_s_per_million"]
