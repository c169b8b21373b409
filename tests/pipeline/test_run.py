"""Whole pipelines over a real broker: every kind of sink, what fails, what is run again, what is tried again."""

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from pyspark.errors import StreamingQueryException
from tests.pipeline.support import Said, archive_ids, header, ledger, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.checkpoint.keeping import FileOnDisk
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.names import dead_stream, edge_stream
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.dead_letters import RetriedLetters, read_letters, retry
from logboom.pipeline.run.delivery import Delivery
from logboom.pipeline.run.display import balance_lines
from logboom.pipeline.run.runner import Runner, RunOptions
from logboom.pipeline.sinks.base import BaseWriter, Delivered
from logboom.pipeline.sinks.console import ConsoleSink

pytestmark = [pytest.mark.spark, needs_java]


def _plan(directory: Path, text: str) -> Plan:
    file = directory / "pipeline.yaml"
    file.write_text(text)
    return compile_pipeline(text, str(file))


def _run(spark: Any, plan: Plan, broker: BrokerProcess) -> Said:
    said = Said()
    Runner(plan, RunOptions(bootstrap=broker.kafka, once=True), said).run_in(spark)
    return said


def _line(**fields: object) -> bytes:
    return json.dumps({"time": "2026-11-20T12:00:00Z", **fields}).encode()


def _events(broker: BrokerProcess, stream: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in records(broker.kafka, stream)]


WHOLE = """
name: whole
sources:
  web: {type: stream, stream: whole-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  clean: {type: filter, inputs: [parsed], condition: "severity_text <> 'DEBUG'"}
  masked:
    type: mask
    inputs: [clean]
    rules: [{kind: email, action: redact}, {kind: card, action: keep_last, keep: 4}]
  split:
    type: route
    inputs: [masked]
    routes:
      errors: "severity_number >= 17"
      slow: "variant_get(attributes, '$.ms', 'int') > 100"
      health: "attributes:path::string = '/health'"
  sampled: {type: sample, inputs: [split.health], rate: 4, key: trace_id}
sinks:
  archive: {type: parquet, inputs: [masked], path: ./archive}
  errors: {type: stream, inputs: [split.errors], stream: whole-errors, key: service}
  slow: {type: stream, inputs: [split.slow], stream: whole-slow, encoding: body}
  health: {type: stream, inputs: [sampled], stream: whole-health}
  screen: {type: console, inputs: [split.unmatched], encoding: text}
"""


def test_every_kind_of_sink_in_one_pipeline(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "whole-web", 2)
    lines = [
        _line(level="ERROR", service="shop", msg="no mail to ann@example.com", ms=500),
        _line(level="INFO", service="shop", msg="card 4111 1111 1111 1111", ms=1),
        _line(level="INFO", service="shop", msg="quick enough", ms=2),
        _line(level="DEBUG", msg="nobody reads this"),
        _line(level="INFO", msg="what is this", ms="not a number"),
        b'{"cut": ',
    ]
    health = [_line(level="INFO", path="/health", ms=1, trace_id=f"{number:032x}") for number in range(1, 201)]
    publish(broker.kafka, "whole-web", lines + health, 2)
    plan = _plan(tmp_path, WHOLE)
    said = _run(spark, plan, broker)

    (error,) = records(broker.kafka, "whole-errors")
    event = json.loads(error.value())
    assert error.key() == b"shop"
    assert event["body"] == "no mail to [email]"
    assert event["attributes"]["ms"] == 500
    assert header(error, "logboom-event-id") == event["event_id"]
    assert header(error, "logboom-origin") == f"whole-web/{event['partition']}/{event['offset']}"
    assert [message.value() for message in records(broker.kafka, "whole-slow")] == [b"no mail to [email]"]
    kept = _events(broker, "whole-health")
    assert 20 <= len(kept) <= 80
    assert {event["weight"] for event in kept} == {4.0}
    screen = [line for line in said.lines if "shop" in line]
    assert len(screen) == 2
    assert any(line.endswith("1111") for line in screen)
    assert not any("4111" in line for line in screen)

    assert set(archive_ids(tmp_path / "archive").values()) == {1}
    assert spark.read.parquet(str(tmp_path / "archive")).count() == 204
    assert sum(archive_ids(tmp_path / "archive").values()) == 204

    total = ledger(tmp_path / "checkpoints" / "whole")["total"]
    assert total["records_in"] == {"web": 206}
    assert (total["dead"]["parsed"], total["dead"]["split"]) == (1, 1)
    assert total["dropped"] == {"clean": 1, "sampled": 200 - len(kept)}
    assert total["masked"] == {"email": 1, "card": 1}
    assert said.last is not None
    assert "(balanced, " in balance_lines(said.last)[0]
    (failed,) = _events(broker, "whole.dead.split")
    assert failed["body"] == "what is this"
    (letter,) = records(broker.kafka, "whole.dead.split")
    reason = header(letter, "logboom-dead-reason")
    assert reason == "the condition of split.slow failed on it: variant_get(attributes, '$.ms', 'int') > 100"

    again = _run(spark, plan, broker)
    assert again.last is not None
    assert again.last.now.batches == 0
    assert sum(archive_ids(tmp_path / "archive").values()) == 204


EDITED = """
name: edited
batch: {max_records: 4}
sources:
  web: {type: stream, stream: edited-web}
MORE
transforms:
  parsed: {type: parse, inputs: [INPUTS], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact, replacement: WORD}]}
sinks:
  out: {type: stream, inputs: [masked], stream: edited-out}
"""


PATTERN = """
name: named
sources:
  web: {type: stream, pattern: 'named(-[ab])?|other'}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
sinks:
  screen: {type: console, inputs: [parsed]}
"""


def test_a_pattern_means_whole_names_of_streams(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    """Else it reads what the pipeline itself writes, and each event comes back for ever."""
    there = ["named", "named-a", "named-b", "other", "named-c", "a-named", "another", "others"]
    for stream in there:
        make_stream(broker.kafka, stream, 1)
        publish(broker.kafka, stream, [_line(msg=stream), b"cut"], 1)
    plan = _plan(tmp_path, PATTERN)
    said = _run(spark, plan, broker)
    again = _run(spark, plan, broker)
    assert sorted(json.loads(line)["body"] for line in said.lines if line.startswith("{")) == there[:4]
    assert not [line for line in again.lines if line.startswith("{")]
    assert len(records(broker.kafka, dead_stream("named", "parsed"))) == 4


def test_a_batch_that_runs_again_after_an_edit_does_what_it_did(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "edited-web", 1)
    make_stream(broker.kafka, "edited-more", 1)
    before = EDITED.replace("WORD", "before").replace("MORE", "").replace("INPUTS", "web")
    after = EDITED.replace("WORD", "after").replace("MORE", "  more: {type: stream, stream: edited-more}")
    publish(broker.kafka, "edited-web", [_line(msg=f"{number} a@example.com") for number in range(4)], 1)
    _run(spark, _plan(tmp_path, before), broker)
    # As after a kill between the batch's writes and Spark's note that it is done.
    commits = tmp_path / "checkpoints" / "edited" / "router" / "commits"
    for file in (*commits.glob("0"), *commits.glob(".0.crc")):
        file.unlink()
    publish(broker.kafka, "edited-web", [_line(msg=f"{number} a@example.com") for number in range(4, 6)], 1)
    publish(broker.kafka, "edited-more", [_line(msg="more a@example.com")], 1)
    _run(spark, _plan(tmp_path, after.replace("INPUTS", "web, more")), broker)

    bodies = Counter(event["body"] for event in _events(broker, "edited-out"))
    assert bodies == Counter(
        {
            **{f"{number} before": 2 for number in range(4)},
            **{f"{number} after": 1 for number in range(4, 6)},
            "more after": 1,
        }
    )
    out = records(broker.kafka, "edited-out")
    assert len({header(message, "logboom-event-id") for message in out}) == 7
    assert ledger(tmp_path / "checkpoints" / "edited")["total"]["records_in"] == {"web": 6, "more": 1}


LETTERS = """
name: letters
sources:
  web: {type: stream, stream: letters-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: FORMAT}]}
sinks:
  out: {type: stream, inputs: [parsed], stream: letters-out}
"""


def test_dead_letters_are_tried_again_with_their_lineage(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "letters-web", 1)
    publish(broker.kafka, "letters-web", [b"level=info msg=hello", _line(msg="fine")], 1)
    plan = _plan(tmp_path, LETTERS.replace("FORMAT", "json"))
    _run(spark, plan, broker)
    admin, book = StreamAdmin(broker.kafka), RetriedLetters(FileOnDisk(tmp_path / "retries.json"))
    (letter,) = read_letters(admin, plan, book)
    assert (letter.stage, letter.origin, letter.value) == ("parsed", "letters-web/0/0", b"level=info msg=hello")
    assert letter.reason
    assert retry(admin, plan, [letter], book) == ((letter.id,), {})
    (letter,) = read_letters(admin, plan, RetriedLetters(FileOnDisk(tmp_path / "retries.json")))
    assert letter.retried
    (sent,) = [message for message in records(broker.kafka, "letters-web") if message.offset() == 2]
    assert sent.value() == b"level=info msg=hello"
    assert header(sent, "logboom-retry-of") == "letters.dead.parsed/0/0"

    _run(spark, _plan(tmp_path, LETTERS.replace("FORMAT", "logfmt")), broker)
    assert "hello" in {event["body"] for event in _events(broker, "letters-out")}


LARGE = """
name: large
sources:
  web: {type: stream, stream: large-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: text}]}
sinks:
  archive: {type: parquet, inputs: [parsed], path: ./archive}
  out: {type: stream, inputs: [parsed], stream: large-out}
  far: {type: stream, inputs: [parsed], stream: large-far, bootstrap: 'BROKER'}
"""


def test_a_large_event_reaches_every_sink_that_takes_it_and_is_kept_whole_for_the_others(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "large-web", 1)
    make_stream(broker.kafka, "large-out", 1)
    make_stream(broker.kafka, "large-far", 1)
    # Escaped, each character takes six: an event of 3 MB, of a record that its own stream took.
    publish(broker.kafka, "large-web", [b"\x01" * 500_000, b"small"], 1)
    plan = _plan(tmp_path, LARGE.replace("BROKER", broker.kafka))
    _run(spark, plan, broker)
    bodies = ["\x01" * 500_000, "small"]
    assert pq.read_table(tmp_path / "archive", columns=["body"]).column("body").to_pylist() == bodies
    assert [event["body"] for event in _events(broker, "large-out")] == ["small"]
    assert [event["body"] for event in _events(broker, "large-far")] == ["small"]
    admin, book = StreamAdmin(broker.kafka), RetriedLetters(FileOnDisk(tmp_path / "retries.json"))
    letters = {letter.stage: letter for letter in read_letters(admin, plan, book)}
    assert letters.keys() == {"out", "far"}
    for letter in letters.values():
        assert "(max.message.bytes is 1048588)" in letter.reason
        assert json.loads(letter.value or b"")["body"] == bodies[0]
        assert len(letter.value or b"") > 3_000_000

    # The streams take more from now on: what was refused is sent again, whole.
    for stream in ("large-out", "large-far"):
        admin.widen([stream])
    assert len(retry(admin, plan, list(letters.values()), book).sent) == 2
    _run(spark, plan, broker)
    # Its own letter came back through its edge; that of `out` as the record, which takes all routes again.
    assert sorted(len(event["body"]) for event in _events(broker, "large-far")) == [5, 500_000, 500_000]
    assert 500_000 in {len(event["body"]) for event in _events(broker, "large-out")}

    # Whatever the default of a broker is, no event of the pipeline's own streams is replaced by one of the same key.
    own = [name for name in admin.partitions() if name.startswith("large.")]
    assert {dead_stream("large", "out"), dead_stream("large", "far")} < set(own)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in own]
    client = AdminClient({"bootstrap.servers": broker.kafka})
    for future in client.describe_configs(resources).values():
        policy = future.result()["cleanup.policy"]
        assert (policy.value, policy.is_default) == ("delete", False)


class Flaky(BaseWriter):
    """A sink that fails so many times."""

    def __init__(self, failures: int, done: threading.Event) -> None:
        self.failures = failures
        self.rows = 0
        self.done = done

    def deliver(self, rows: Any, batch: int) -> Delivered:
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is away")
        self.rows += rows.count()
        self.done.set()
        return Delivered("flaky", batch, rows=self.rows)


class Blocked(Flaky):
    """A sink that does not come back until it is let go."""

    def deliver(self, rows: Any, batch: int) -> Delivered:
        self.done.wait(WAIT_S)
        return Delivered("blocked", batch, rows=rows.count())


def _delivery(
    spark: Any, broker: BrokerProcess, checkpoint: Path, name: str, target: Flaky, told: list[Delivered]
) -> Delivery:
    admin = StreamAdmin(broker.kafka)
    on_failure: Literal["dead_letter", "retry"] = "retry" if name == "stubborn" else "dead_letter"
    sink = ConsoleSink(name=name, line=1, inputs=("edge",), on_failure=on_failure, attempts=2)
    delivery = Delivery(
        spark=spark,
        pipeline="sinks",
        sink=sink,
        edges=admin.ensure({edge_stream("sinks", "edge"): 1}),
        admin=admin,
        checkpoint=checkpoint / name,
        writer=target,
        stop=threading.Event(),
        on_delivered=told.append,
    )
    admin.ensure({dead_stream("sinks", name): 1})
    delivery.remember_start()
    return delivery


def test_a_sink_that_fails_or_hangs_delays_no_other(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    told: list[Delivered] = []
    let_go, failed, recovered, fine, patient = (threading.Event() for _ in range(5))
    targets = {
        "blocked": Blocked(0, let_go),
        "failing": Flaky(1_000, failed),
        "flaky": Flaky(1, recovered),
        "stubborn": Flaky(4, patient),
        "fine": Flaky(0, fine),
    }
    deliveries = [_delivery(spark, broker, tmp_path, name, target, told) for name, target in targets.items()]
    publish(broker.kafka, edge_stream("sinks", "edge"), [b'{"body": "x"}'] * 10, 1)
    queries = [delivery.start(once=False) for delivery in deliveries]
    try:
        assert fine.wait(WAIT_S)
        assert recovered.wait(WAIT_S)
        assert patient.wait(WAIT_S)
        until(lambda: any(one.dead for one in told), "what is given up becomes dead letters")
    finally:
        for delivery in deliveries:
            delivery.stop.set()
        let_go.set()
        for query in queries:
            query.stop()
    assert targets["fine"].rows == targets["flaky"].rows == targets["stubborn"].rows == 10
    assert sum(one.dead for one in told) == 10
    letters = records(broker.kafka, dead_stream("sinks", "failing"))
    assert len(letters) == 10
    assert header(letters[0], "logboom-dead-reason") == "OSError: the disk is away"
    assert header(letters[0], "logboom-edge") == "_sinks.edge"


def test_a_run_that_has_to_end_leaves_what_a_stubborn_sink_does_not_take(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    stream, told = edge_stream("sinks", "edge"), list[Delivered]()
    away, back = Flaky(1_000, threading.Event()), Flaky(0, threading.Event())
    delivery = _delivery(spark, broker, tmp_path, "stubborn", away, told)
    publish(broker.kafka, stream, [b'{"body": "x"}'] * 10, 1)
    query = delivery.start(once=True)
    with pytest.raises(StreamingQueryException, match="failed 2 times, last with OSError: the disk is away"):
        query.awaitTermination(120)
    assert not any(one.dead or one.rows for one in told)
    delivery = _delivery(spark, broker, tmp_path, "stubborn", back, told)
    assert delivery.start(once=True).awaitTermination(120)
    assert back.rows == 10


def test_undelivered_events_reach_the_archive_when_tried_again(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "back-web", 1)
    text = """
name: back
sources:
  web: {type: stream, stream: back-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
sinks:
  archive: {type: parquet, inputs: [parsed], path: ./archive}
"""
    plan = _plan(tmp_path, text)
    # A sink that has left the file: as long as its checkpoint is there, its edge is kept for it.
    left = tmp_path / "checkpoints" / "back" / "deliveries" / "left"
    left.mkdir(parents=True)
    (left / "start.json").write_text('{"_back.parsed": {"0": 0}}')
    publish(broker.kafka, "back-web", [_line(msg="first")], 1)
    _run(spark, plan, broker)
    admin = StreamAdmin(broker.kafka)
    delivery = _delivery(spark, broker, tmp_path, "unused", Flaky(0, threading.Event()), [])
    delivery.pipeline, delivery.sink = "back", plan.sinks[0]
    stored = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.kafka)
    delivery._write_dead_letters(stored.option("subscribe", "_back.parsed").load(), "the disk was away")
    shutil.rmtree(tmp_path / "archive")
    shutil.rmtree(tmp_path / "checkpoints" / "back" / "deliveries")
    publish(broker.kafka, "back-web", [_line(msg="second")], 1)
    _run(spark, plan, broker)
    book = RetriedLetters(FileOnDisk(tmp_path / "retries.json"))
    (letter,) = read_letters(admin, plan, book, "archive")
    assert letter.edge == "_back.parsed"
    retry(admin, plan, [letter], book)
    _run(spark, plan, broker)
    found = pq.read_table(tmp_path / "archive").column("body").to_pylist()
    assert sorted(found) == ["first", "second"]


TRIMMED = """
name: trimmed
sources:
  web: {type: stream, stream: trimmed-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
sinks:
  archive: {type: parquet, inputs: [parsed], path: ./archive}
  screen: {type: console, inputs: [parsed]}
"""


def test_an_edge_keeps_only_what_some_delivery_may_read_again(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "trimmed-web", 2)
    plan = _plan(tmp_path, TRIMMED)
    for life in range(3):
        publish(broker.kafka, "trimmed-web", [_line(msg=f"{life} {number}") for number in range(10)], 2)
        said = _run(spark, plan, broker)
        assert sum("{" in line for line in said.lines) == 10
        assert records(broker.kafka, "_trimmed.parsed") == []
    assert sum(archive_ids(tmp_path / "archive").values()) == 30
    assert set(archive_ids(tmp_path / "archive").values()) == {1}

    # A delivery that was killed before its last batch: the others' records stay for it, and are read from there.
    shutil.rmtree(tmp_path / "checkpoints" / "trimmed" / "deliveries" / "screen")
    (tmp_path / "checkpoints" / "trimmed" / "deliveries" / "screen").mkdir()
    start = {"_trimmed.parsed": StreamAdmin(broker.kafka).ends({"_trimmed.parsed": 2})["_trimmed.parsed"]}
    (tmp_path / "checkpoints" / "trimmed" / "deliveries" / "screen" / "start.json").write_text(json.dumps(start))
    only_archive = _plan(tmp_path, TRIMMED.replace("  screen: {type: console, inputs: [parsed]}\n", ""))
    publish(broker.kafka, "trimmed-web", [_line(msg=f"3 {number}") for number in range(10)], 2)
    _run(spark, only_archive, broker)
    assert len(records(broker.kafka, "_trimmed.parsed")) == 10
    said = _run(spark, _plan(tmp_path, TRIMMED), broker)
    assert sum("{" in line for line in said.lines) == 10
    assert records(broker.kafka, "_trimmed.parsed") == []


INPUTS = """
name: inputs
sources:
  web: {type: stream, stream: inputs-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  split: {type: route, inputs: [parsed], routes: {errors: "severity_number >= 17"}}
sinks:
  archive: {type: parquet, inputs: [EDGES], path: ./archive}
  screen: {type: console, inputs: [split.errors, split.unmatched]}
"""


def test_a_sink_takes_up_an_edge_that_others_have_read(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "inputs-web", 1)
    for life, edges in enumerate(("split.errors", "split.errors, split.unmatched", "split.unmatched")):
        lines = [_line(level=level, msg=f"{life} {level}") for level in ("ERROR", "INFO")]
        publish(broker.kafka, "inputs-web", lines, 1)
        _run(spark, _plan(tmp_path, INPUTS.replace("EDGES", edges)), broker)
    bodies = pq.read_table(tmp_path / "archive").column("body").to_pylist()
    assert sorted(bodies) == ["0 ERROR", "1 ERROR", "1 INFO", "2 INFO"]
