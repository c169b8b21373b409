"""Dials turned on the command line, with the router of a real pipeline behind them."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.cli.running import ok, refused
from tests.pipeline.support import (
    RouterProcess,
    Said,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.plan.names import DIALS_STREAM
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]

FILE = """
name: turned
sources:
  web: {type: stream, stream: turned-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  clean: {type: filter, inputs: [parsed], condition: "severity_number > 4"}
  sampled: {type: sample, inputs: [clean], rate: {dial: noise, default: 1, min: 1, max: 100}, key: event_id}
sinks:
  out: {type: stream, inputs: [sampled], stream: turned-out}
"""
LINES = 400


def _run(spark: Any, plan: Plan, broker: BrokerProcess) -> Said:
    said = Said()
    Runner(plan, RunOptions(bootstrap=broker.kafka, once=True), said).run_in(spark)
    return said


def test_a_turned_dial_holds_from_the_next_batch_on(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap = broker.kafka
    make_stream(bootstrap, "turned-web", 2)
    file = tmp_path / "turned.yaml"
    file.write_text(FILE)
    plan = compile_pipeline(FILE, str(file))
    lines = [json.dumps({"level": "INFO", "msg": str(number)}).encode() for number in range(LINES)]
    weights: list[float] = []

    def batch() -> dict[str, Any]:
        publish(bootstrap, "turned-web", lines, 2)
        _run(spark, plan, broker)
        weights[:] = [json.loads(message.value())["weight"] for message in records(bootstrap, "turned-out")]
        return ledger(tmp_path / "checkpoints" / "turned")

    assert "no pipeline 'turned' has run" in refused("pipeline", "dial", "list", "turned", bootstrap=bootstrap)
    first = batch()
    assert (first["dials"], set(weights)) == ({}, {1.0})

    # A run has told which dials there are; from then on the name of the pipeline is enough.
    wrong = refused("pipeline", "dial", "set", "turned", "noise", "101", bootstrap=bootstrap)
    assert "noise 101: should be 1 to 100; nothing was changed" in wrong
    wrong = refused("pipeline", "dial", "set", "turned", "noise", "much", bootstrap=bootstrap)
    assert "(noise accepts 1 to 100); nothing was changed" in wrong
    assert "did you mean 'noise'?" in refused("pipeline", "dial", "set", "turned", "nois", "5", bootstrap=bootstrap)
    ok("pipeline", "dial", "set", "turned", "noise", "20", "--why", "less noise", "--by", "ann", bootstrap=bootstrap)
    ok("pipeline", "dial", "set", str(file), "noise", "4", "--for", "1h", "--why", "deploy", bootstrap=bootstrap)
    noise = next(
        one
        for one in ok("pipeline", "dial", "list", "turned", "--json", bootstrap=bootstrap).json_lines
        if one["dial"] == "noise"
    )
    assert (noise["value"], noise["default"], noise["why"]) == (4, 1, "deploy")
    second = batch()
    assert second["dials"] == {"noise": 4}
    kept = len(weights) - LINES
    assert sorted(set(weights)) == [1.0, 4.0]
    assert LINES // 8 < kept < LINES // 2
    assert second["ledger"]["dropped"]["sampled"] == LINES - kept

    ok("pipeline", "dial", "set", "turned", "clean", "off", bootstrap=bootstrap)
    ok("pipeline", "dial", "set", "turned", "noise", "50", "--for", "1ms", bootstrap=bootstrap)
    time.sleep(0.002)  # its expiry, by this machine's clock
    third = batch()
    assert third["dials"] == {"noise": 4, "clean": False}
    ok("pipeline", "dial", "reset", "turned", "noise", bootstrap=bootstrap)
    assert batch()["dials"] == {"clean": False}

    told = ok("pipeline", "dial", "history", "turned", "noise", "--json", bootstrap=bootstrap).json_lines
    assert [one["value"] for one in told] == [20, 4, 50, None]
    assert (told[0]["by"], told[0]["why"], told[0]["until"]) == ("ann", "less noise", None)
    assert "deploy" in ok("pipeline", "dial", "history", "turned", bootstrap=bootstrap).out


@pytest.mark.slow
def test_a_batch_that_runs_again_keeps_the_dials_it_began_with(
    spark: Any, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch fails behind its writes, the dial is turned, and the batch runs again: the same events, once more."""
    from logboom.pipeline.checkpoint.ledger import BatchLedgers

    bootstrap, text = broker.kafka, FILE.replace("turned", "again")
    make_stream(bootstrap, "again-web", 2)
    file = tmp_path / "again.yaml"
    file.write_text(text)
    plan = compile_pipeline(text, str(file))
    publish(bootstrap, "again-web", [json.dumps({"msg": str(n), "level": "INFO"}).encode() for n in range(LINES)], 2)
    ok("pipeline", "dial", "set", str(file), "noise", "4", bootstrap=bootstrap)

    with monkeypatch.context() as broken:
        broken.setattr(BatchLedgers, "record", lambda *_, **__: (_ for _ in ()).throw(OSError("no space left")))
        with pytest.raises(Exception, match="no space left"):
            _run(spark, plan, broker)
    ok("pipeline", "dial", "set", str(file), "noise", "90", bootstrap=bootstrap)
    _run(spark, plan, broker)
    assert ledger(tmp_path / "checkpoints" / "again")["dials"] == {"noise": 4}
    ids = [json.loads(message.value())["event_id"] for message in records(bootstrap, "again-out")]
    assert len(ids) == 2 * len(set(ids)) > 0


def test_without_a_name_dials_of_all_pipelines_of_the_log_are_shown(tmp_path: Path) -> None:
    """Those whose dials were set, even if they have never run. Records of strangers are passed over."""
    with BrokerProcess(tmp_path / "log") as broker:
        bootstrap = broker.kafka
        for what in ("list", "history"):
            told = ok("pipeline", "dial", what, bootstrap=bootstrap)
            assert (told.out, "no pipeline with dials has run on" in told.err) == ("", True)
        for name, value in (("green", "9"), ("blue", "7")):
            file = tmp_path / f"{name}.yaml"
            file.write_text(FILE.replace("turned", name))
            ok("pipeline", "dial", "set", str(file), "noise", value, "--why", f"{value} of it", bootstrap=bootstrap)
        producer = Producer({"bootstrap.servers": bootstrap})
        for key, record in (("blue/noise/1-0", b"{"), ("odd", b"{"), ("unlisted/noise/1-0", b"{}")):
            producer.produce(DIALS_STREAM, record, key, partition=0)
        assert producer.flush(WAIT_S) == 0

        listed = ok("pipeline", "dial", "list", "--json", bootstrap=bootstrap)
        stands = [(one["pipeline"], one["dial"], one["value"]) for one in listed.json_lines]
        assert stands == [
            ("blue", "clean", True),
            ("blue", "noise", 7),
            ("green", "clean", True),
            ("green", "noise", 9),
        ]
        assert "the record blue/noise/1-0 of the dials is not a change of a dial" in listed.err
        head, *rows = ok("pipeline", "dial", "list", bootstrap=bootstrap).out.splitlines()
        assert head.split()[:4] == ["PIPELINE", "DIAL", "VALUE", "DEFAULT"]
        assert rows[-1].split()[:3] == ["green", "noise", "9"]
        by_name = ok("pipeline", "dial", "list", "green", bootstrap=bootstrap).out
        assert ("PIPELINE" in by_name, "9 of it" in by_name) == (False, True)

        told = ok("pipeline", "dial", "history", "--json", bootstrap=bootstrap)
        assert [(one["pipeline"], one["why"]) for one in told.json_lines] == [("green", "9 of it"), ("blue", "7 of it")]
        assert ok("pipeline", "dial", "history", bootstrap=bootstrap).out.split()[:3] == ["AT", "PIPELINE", "DIAL"]


def _strange(number: int) -> tuple[bytes, bytes | None]:
    """What a stranger may write among the dials of the pipeline `flooded`."""
    name = f"made-up-{number}"
    change = {"dial": name, "value": number, "by": "x", "at_ms": number}
    return [
        (f"flooded/{name}/{number}-0".encode(), json.dumps(change).encode()),
        (f"flooded/noise/{number}-0".encode(), b"{"),
        (f"flooded/noise/{number}-0".encode(), b"x" * 10_000),
        (b"flooded/" + b"\xff" * 1_000 + str(number).encode(), None),
        (f"flooded/noise/{number}-0".encode(), b'{"dial": "noise", "value": -7, "by": "x", "at_ms": 1}'),
        (f"other/noise/{number}-0".encode(), json.dumps({**change, "dial": "noise"}).encode()),
    ][number % 6]


@contextmanager
def _flood(bootstrap: str) -> Iterator[list[int]]:
    """Records among the dials, as fast as they are taken, until the end; how many there have been."""
    count, ends = [0], threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})

    def write() -> None:
        while not ends.is_set():
            key, value = _strange(count[0])
            try:
                producer.produce(DIALS_STREAM, key=key, value=value)
                count[0] += 1
            except BufferError:
                producer.poll(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield count
    finally:
        ends.set()
        writer.join(WAIT_S)
        producer.flush(WAIT_S)


@pytest.mark.slow
def test_a_strangers_flood_of_the_dials_stops_no_event_and_no_change(broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap = broker.kafka
    make_stream(bootstrap, "flooded-web", 2)
    file = tmp_path / "flooded.yaml"
    file.write_text(
        FILE.replace("turned", "flooded").replace("name: flooded", "name: flooded\nbatch: {interval: 100ms}")
    )
    lines = [json.dumps({"level": "INFO", "msg": str(number)}).encode() for number in range(LINES)]

    def read() -> int:
        found = ledger(tmp_path / "checkpoints" / "flooded") if any(books.glob("*.json")) else None
        return 0 if found is None else int(found["total"]["records_in"]["web"])

    books = tmp_path / "checkpoints" / "flooded" / "ledger"
    with RouterProcess(file, bootstrap) as router:
        publish(bootstrap, "flooded-web", lines, 2)
        until(lambda: read() == LINES, "the first batch")
        with _flood(bootstrap) as written:
            until(lambda: written[0] > 50_000, "a flood")
            for number in range(2, 5):
                publish(bootstrap, "flooded-web", lines, 2)
                until(lambda wanted=number * LINES: read() == wanted, "batches under the flood")  # type: ignore[misc]
        ok("pipeline", "dial", "set", "flooded", "noise", "4", "--by", "ann", bootstrap=bootstrap)
        told = ok("pipeline", "dial", "history", "flooded", "--json", bootstrap=bootstrap).json_lines
        assert [one["by"] for one in told][-1] == "ann"
        assert len(told) <= 200
        until(lambda: "the dial noise is now 4" in _after_more(bootstrap, lines, router), "the change holds")
        assert router.sigterm() == 0
    said = router.log_text()
    assert said.count("is not a change of a dial") + said.count("which the pipeline does not have") <= 5
    assert said.count("more invalid records of the dials are ignored") >= 1
    assert said.count("not read yet") < 20


def _after_more(bootstrap: str, lines: list[bytes], router: RouterProcess) -> str:
    """What the router has said, once there is more to read."""
    publish(bootstrap, "flooded-web", lines[:2], 2)
    return router.log_text()
