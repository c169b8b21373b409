"""`logboom bench compare`: who cannot be had is named, who can is measured in turns, and what is told adds up."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from logboom.bench.compare import CompareLoad, run_compare, write_outcome
from logboom.bench.compare import run as compare_run
from logboom.bench.compare.outcome import as_markdown, goals, ratio
from logboom.bench.compare.run import Outcome
from logboom.bench.servers import KafkaServer, LogboomServer, NatsServer, UnavailableError, jars

SHORT = CompareLoad(
    contestants=("logboom",),
    only=("latency", "throughput", "start", "restart"),
    rounds=1,
    warm_s=0.5,
    latency_s=0.5,
    messages=200,
    size_max_bytes=4 << 20,
    idle_s=0.3,
    restart_bytes=5_000_000,
)


MACHINE: dict[str, object] = {"time": "now", "cpu": "x", "cores": 2, "memory_gib": 1, "kernel": "6"}


def outcome_of(samples: dict[str, dict[str, list[dict[str, float]]]]) -> Outcome:
    titles = dict.fromkeys(samples, "a title")
    versions = dict.fromkeys(("logboom", "kafka", "nats", "nats-always", "nothing"), "1")
    return Outcome(CompareLoad(rounds=3), titles, dict(samples), {}, {}, versions, {})


def rates(*values: float) -> list[dict[str, float]]:
    return [{"records_per_s": value, "mb_per_s": value / 10, "cpu_s_per_million": 1 / value} for value in values]


def test_a_ratio_is_taken_within_each_round() -> None:
    """The machine was three times slower in the last two rounds; a ratio of medians would say 2.0 / 3.0."""
    outcome = outcome_of({"produce-100": {"logboom": rates(6, 2, 2), "kafka": rates(3, 1, 4)}})
    assert ratio(outcome, "produce-100", "records_per_s", "kafka") == 2.0
    assert ratio(outcome, "produce-100", "records_per_s", "nats") is None


def test_goals_are_decided_by_the_systems_that_were_measured() -> None:
    outcome = outcome_of({"produce-100": {"logboom": rates(2), "kafka": rates(3), "kafka-fsync": rates(1)}})
    told = {each["goal"]: each["held"] for each in goals(outcome)}
    assert told == {
        "produce 100 B: rate at least Kafka's without fsync": False,
        "produce 100 B: CPU at most Kafka's with fsync": True,
    }


def test_the_table_names_systems_that_failed_or_were_left_out() -> None:
    outcome = outcome_of({"produce-100": {"logboom": rates(2_000), "kafka": rates(1_000)}})
    outcome.failures["produce-100"] = {"kafka-fsync": "it broke"}
    outcome.left_out = {"nats": "no Go here", "nats-always": "no Go here"}
    text = as_markdown(outcome, MACHINE)
    assert "| Logboom, fsync | 2,000 | - | 200 |" in text
    assert "| Kafka, no fsync | 1,000 | 2.00 | 100 |" in text
    assert "| Kafka, fsync | failed: it broke |" in text
    assert "| JetStream, no fsync | left out | no Go here |" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_peers_that_cannot_be_had_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars, "cache_root", lambda: tmp_path / "empty")
    with pytest.raises(UnavailableError, match="Java 17 or newer"):
        KafkaServer(tmp_path / "kafka").prepare()
    monkeypatch.setattr("logboom.bench.servers.nats.cache_root", lambda: tmp_path / "empty")
    with pytest.raises(UnavailableError, match="install nats-server"):
        NatsServer(tmp_path / "nats").prepare()


def test_a_server_that_exits_at_once_is_reported_with_its_output(tmp_path: Path) -> None:
    server = LogboomServer(tmp_path / "logboom", {"broker.no_such_setting": 1})
    with pytest.raises(UnavailableError, match="no_such_setting"):
        server.start()


def test_a_server_is_paused_killed_and_started_on_its_data(tmp_path: Path) -> None:
    server = LogboomServer(tmp_path / "logboom")
    try:
        assert server.start() > 0
        server.pause()
        server.resume()
        assert server.answers()
        server.kill9()
        assert not server.running
        server.start()
        assert server.answers()
    finally:
        server.remove()
    assert not server.directory.exists()


@pytest.mark.in_turn(3)
def test_a_comparison_without_peers_goes_on_and_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(self: KafkaServer) -> None:
        raise UnavailableError("no Java here")

    monkeypatch.setattr(KafkaServer, "prepare", nobody)
    monkeypatch.setattr(compare_run, "SIZES", (256, 65_536))
    monkeypatch.setattr(compare_run, "WELL_KNOWN", ((256, 200),))
    load = replace(SHORT, contestants=("logboom", "kafka", "kafka-fsync"))
    outcome = run_compare(load, tmp_path, lambda _: None)
    assert outcome.left_out == {"kafka": "no Java here", "kafka-fsync": "no Java here"}
    assert outcome.failures == {}
    assert set(outcome.samples) == {"latency-256", "throughput-256", "throughput-65536", "start", "restart"}
    folder, text = write_outcome(tmp_path / "out", outcome)
    assert "left out | no Java here" in text
    assert json.loads((folder / "result.json").read_text())["samples"]["restart"]["logboom"][0]["restart_s"] > 0
    assert {path.name for path in folder.iterdir()} == {
        "result.json",
        "table.md",
        "latency.png",
        "throughput.png",
        "lives.png",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "what the servers kept is gone"


@pytest.mark.in_turn(3)
def test_an_interrupted_comparison_reports_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_in_the_second_case(words: str) -> None:
        if "throughput-1024" in words:
            raise SystemExit(143)

    monkeypatch.setattr(compare_run, "SIZES", (256, 1_024))
    outcome = run_compare(replace(SHORT, only=("throughput",)), tmp_path, ends_in_the_second_case)
    assert outcome.ended_early
    assert list(outcome.samples) == ["throughput-256"]
    assert "ended before everything" in as_markdown(outcome, MACHINE)
    assert write_outcome(tmp_path / "out", outcome)[0].is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.clients
@pytest.mark.timeout(1800)
def test_everybody_takes_part_in_a_quick_run(tmp_path: Path) -> None:
    missing = [tool for tool in ("java", "mvn", "go") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not here")
    quick = CompareLoad.quick(CompareLoad.contestants, ("produce", "consume", "start"))
    load = replace(quick, warm_s=2.0, produce_s=0.5, consume_bytes=20_000_000, idle_s=1.0)
    outcome = run_compare(load, tmp_path, lambda _: None)
    if outcome.left_out:  # their packages could not be fetched
        pytest.skip(f"left out: {outcome.left_out}")
    for (
        case,
        taken,
    ) in outcome.samples.items():  # a peer that a busy machine keeps from a case is named, not passed over
        able = {name for name, _ in outcome.took_part(case.partition("-")[0])}
        assert "logboom" in taken
        if case != "start":
            assert set(taken) | set(outcome.failures.get(case, {})) == able
    assert {case.partition("-")[0] for case in outcome.samples} == {"produce", "consume", "start"}
