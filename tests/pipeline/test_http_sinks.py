"""Sinks over HTTP in whole pipelines: what is refused or not delivered, another run, and other sinks meanwhile."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import (
    RouterProcess,
    Said,
    archive_ids,
    header,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.pipeline_sinks.contracts.webhook import Webhook
from tests.pipeline_sinks.server import Server
from tests.support.server import BrokerProcess
from tests.support.waiting import until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]

PIPELINE = """
name: {name}
sources: {{web: {{type: stream, stream: {name}-web}}}}
transforms: {{parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}}}
sinks:
  hook:
    type: webhook
    inputs: [parsed]
    url: {url}/hook
    token_file: token
    batch: {{max_events: 20, max_age: 200ms}}
    timeout: 2s
    retry_for: {retry_for}
    attempts: 2
    requests_per_second: 200
  archive: {{type: parquet, inputs: [parsed], path: ./archive}}
"""


def _plan(directory: Path, name: str, server: Server, retry_for: str = "20s") -> Plan:
    text = PIPELINE.format(name=name, url=server.url, retry_for=retry_for)
    (directory / "token").write_text(server.contract.secret)
    return compile_pipeline(text, str(directory / "pipeline.yaml"))


def _run(spark: Any, plan: Plan, broker: BrokerProcess) -> Said:
    said = Said()
    Runner(plan, RunOptions(bootstrap=broker.kafka, once=True), said).run_in(spark)
    return said


def _lines(first: int, count: int) -> list[bytes]:
    return [
        json.dumps({"msg": "poison" if number == 17 else f"n {number}"}).encode()
        for number in range(first, first + count)
    ]


def test_a_sink_over_http_delivers_and_what_it_refuses_is_a_dead_letter(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "hooked-web", 2)
    publish(broker.kafka, "hooked-web", _lines(0, 100), 2)
    with Server(Webhook()) as server:
        server.faults.next += ["500", "429", "half"]
        plan = _plan(tmp_path, "hooked", server)
        _run(spark, plan, broker)
        assert sum(server.contract.events.values()) == len(server.contract.events) == 99
        (letter,) = records(broker.kafka, "hooked.dead.hook")
        assert "there is poison in it" in str(header(letter, "logboom-dead-reason"))
        assert header(letter, "logboom-dead-form") == "event"
        assert json.loads(letter.value())["body"] == "poison"
        publish(broker.kafka, "hooked-web", _lines(100, 50), 2)
        _run(spark, plan, broker)
        assert sum(server.contract.events.values()) == len(server.contract.events) == 149
    checkpoint = tmp_path / "checkpoints" / "hooked"
    written = b"".join(path.read_bytes() for path in checkpoint.rglob("*") if path.is_file())
    assert server.contract.secret.encode() not in written


def test_what_a_dead_server_had_taken_before_is_not_among_the_dead_letters(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "cut-web", 1)
    publish(broker.kafka, "cut-web", _lines(100, 100), 1)
    with Server(Webhook()) as server:
        taken = server.contract.handle

        def three_then_none(request: Any) -> Any:
            if sum(server.contract.events.values()) >= 60:
                server.faults.always = "500"
            return taken(request)

        server.contract.handle = three_then_none  # type: ignore[method-assign]
        plan = _plan(tmp_path, "cut", server, retry_for="100ms")
        _run(spark, plan, broker)
        letters = [json.loads(each.value())["event_id"] for each in records(broker.kafka, "cut.dead.hook")]
        assert set(letters) | set(server.contract.events) == {f"cut-web:0:{number}" for number in range(100)}
        assert set(letters).isdisjoint(server.contract.events)
        assert len(letters) == len(set(letters)) > 0
    assert len(archive_ids(tmp_path / "archive")) == 100


@pytest.mark.slow
def test_a_router_that_is_killed_sends_the_batch_that_was_cut_off_again_and_nothing_else(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "shot-web", 2)
    file = tmp_path / "pipeline.yaml"
    with Server(Webhook()) as server:
        (tmp_path / "token").write_text(server.contract.secret)
        text = PIPELINE.format(name="shot", url=server.url, retry_for="60s")
        file.write_text(text.replace("  archive: {type: parquet, inputs: [parsed], path: ./archive}\n", ""))
        events = server.contract.events
        with RouterProcess(file, broker.kafka) as router:
            publish(broker.kafka, "shot-web", _lines(100, 300), 2)
            until(lambda: len(events) == 300, "the first events")
            server.faults.always = "hang"
            publish(broker.kafka, "shot-web", _lines(400, 200), 2)
            until(lambda: server.faults.applied["hang"] > 0, "a request under way")
            server.faults.always = None
            until(lambda: len(events) > 320, "a part of the batch")
            router.kill9()
        publish(broker.kafka, "shot-web", _lines(600, 100), 2)
        with RouterProcess(file, broker.kafka, "--once") as router:
            assert router.wait() == 0
        assert set(events) == {f"shot-web:{number % 2}:{number // 2}" for number in range(600)}
        twice = {identity for identity, count in events.items() if count > 1}
        first = {f"shot-web:{number % 2}:{number // 2}" for number in range(300)}
        assert twice.isdisjoint(first)
        assert max(events.values()) <= 2
        assert list(records(broker.kafka, "shot.dead.hook")) == []


@pytest.mark.slow
def test_a_router_that_is_stopped_between_two_attempts_sends_the_rest_alone(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "halted-web", 1)
    file = tmp_path / "pipeline.yaml"
    with Server(Webhook()) as server:
        (tmp_path / "token").write_text(server.contract.secret)
        text = PIPELINE.format(name="halted", url=server.url, retry_for="100ms")
        file.write_text(text.replace("attempts: 2", "on_failure: retry\n    concurrency: 1"))
        server.faults.next += [None] * 3
        server.faults.always = "500"
        publish(broker.kafka, "halted-web", _lines(100, 200), 1)
        with RouterProcess(file, broker.kafka) as router:
            until(lambda: server.faults.applied["500"] > 0, "an attempt that fails")
            until(lambda: any(tmp_path.rglob("partial.json")), "what it has done")
            assert router.sigterm() == 0
        events = server.contract.events
        taken = dict(events)
        assert 0 < len(taken) <= 60
        server.faults.always = None
        with RouterProcess(file, broker.kafka, "--once") as router:
            assert router.wait() == 0
        assert events == {f"halted-web:0:{number}": 1 for number in range(200)}
        assert list(records(broker.kafka, "halted.dead.hook")) == []
