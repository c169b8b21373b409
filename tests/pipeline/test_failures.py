"""What a person reads when a run fails: the cause in one sentence, with its place in the pipeline's file."""

import contextlib
import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from tests.pipeline.support import Said, make_stream, needs_java, publish
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.parse.formats.pattern import PatternFormat
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.progress import SinkProgress
from logboom.pipeline.run.runner import Runner, RunOptions
from logboom.pipeline.spark.session import start_session
from logboom.pipeline.spark.settings import SessionOptions
from logboom.pipeline.transforms.parse import ParseTransform

pytestmark = [pytest.mark.spark, needs_java]

PIPELINE = """
name: placed
sources:
  web: {type: stream, stream: placed-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: text}]}
sinks:
  archive: {type: parquet, inputs: [parsed], path: ./locked/archive}
"""


def _plan(directory: Path, text: str) -> Plan:
    file = directory / "pipeline.yaml"
    file.write_text(text)
    return compile_pipeline(text, str(file))


def _broken(plan: Plan) -> Plan:
    """The plan with an expression that no check lets through."""
    (parse,) = (node for node in plan.transforms if isinstance(node, ParseTransform))
    form = PatternFormat(expressions=("(",), fields=((),))
    rule = msgspec.structs.replace(parse.rules[0], format=form, label="mine", line=7)
    return msgspec.structs.replace(plan, transforms=(msgspec.structs.replace(parse, rules=(rule,)),))


class Running(AbstractContextManager["Running"]):
    """A run that goes on until it is stopped, in the session of the tests."""

    def __init__(self, spark: Any, plan: Plan, broker: BrokerProcess) -> None:
        self.said, self.failures = Said(), list[PipelineError]()
        self._runner = Runner(plan, RunOptions(bootstrap=broker.kafka), self.said)
        self.thread = threading.Thread(target=self._run, args=(spark,))
        self.thread.start()

    def _run(self, spark: Any) -> None:
        try:
            self._runner.run_in(spark)
        except PipelineError as error:
            self.failures.append(error)

    def records_in(self) -> int:
        return sum(self._runner.progress.snapshot().now.records_in.values())

    def sinks(self) -> list[SinkProgress]:
        return list(self._runner.progress.snapshot().sinks.values())

    def delivered(self) -> int:
        return sum(sink.rows for sink in self.sinks())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.stop()
        self.thread.join(WAIT_S)


def _failure(spark: Any, plan: Plan, broker: BrokerProcess) -> str:
    with pytest.raises(PipelineError) as failed:
        Runner(plan, RunOptions(bootstrap=broker.kafka, once=True), Said()).run_in(spark)
    told = str(failed.value)
    assert "\n" not in told
    return told


def test_an_exception_in_a_worker_is_told_with_its_place_and_cause(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    plan = _broken(_plan(tmp_path, PIPELINE))
    make_stream(broker.kafka, "placed-web", 1)
    publish(broker.kafka, "placed-web", [b"a line"], 1)
    told = _failure(spark, plan, broker)
    assert f"rule mine (line 7) of transform parsed (line 6) of {plan.file} failed: " in told
    assert "missing )" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_path_that_cannot_be_written_names_the_sink_and_its_line(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    plan = _plan(tmp_path, PIPELINE.replace("placed", "locked"))
    make_stream(broker.kafka, "locked-web", 1)
    told = _failure(spark, plan, broker)
    assert told.startswith(f"{plan.file}:8: the sink archive cannot be opened: PermissionError: ")


def test_a_path_below_a_file_names_the_sink_and_its_line(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "locked").write_text("a file")
    plan = _plan(tmp_path, PIPELINE.replace("placed", "below"))
    make_stream(broker.kafka, "below-web", 1)
    assert f"{plan.file}:8: the sink archive cannot be opened: " in _failure(spark, plan, broker)


def test_a_spark_master_that_is_not_there_is_named() -> None:
    with pytest.raises(
        PipelineError, match=r"no Spark master answers at spark://127\.0\.0\.1:1 \(Connection refused\)"
    ):
        start_session("nobody", SessionOptions(master="spark://127.0.0.1:1"))
    with pytest.raises(PipelineError, match="--master spark://nowhere: "):
        start_session("nobody", SessionOptions(master="spark://nowhere"))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("again", "stream: again-web"),
        ("again-by-pattern", "pattern: again-by-pattern-w.*"),
        ("again-and-gone", "pattern: again-and-gone-w.*, on_data_loss: continue"),
    ],
)
def test_a_stream_that_is_made_again_ends_a_run_that_reads_it(
    spark: Any, broker: BrokerProcess, tmp_path: Path, name: str, source: str
) -> None:
    """Its query goes on, where it fails behind another start, in the new stream at the offsets of the old one."""
    plan = _reading(tmp_path, name, source)
    stream = f"{name}-web"
    make_stream(broker.kafka, stream, 1)
    publish(broker.kafka, stream, [b"old"] * 5, 1)
    with Running(spark, plan, broker) as running:
        until(lambda: running.records_in() == 5, "the old stream's records")
        _delete(broker, stream)
        make_stream(broker.kafka, stream, 1)
        publish(broker.kafka, stream, [b"new"] * 20, 1)
        until(lambda: not running.thread.is_alive(), "the end of the run")
    assert [f"the stream {stream} was deleted and recreated" in str(error) for error in running.failures] == [True]
    assert running.records_in() == 5


def test_streams_of_a_pattern_may_go_and_others_come(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    """Also one that was made again, in the middle of the batch at which its run has ended."""
    plan = _reading(tmp_path, "coming", "pattern: coming-w.*, on_data_loss: continue")
    for stream in ("coming-web", "coming-wide"):
        make_stream(broker.kafka, stream, 1)
        publish(broker.kafka, stream, [b"old"] * 5, 1)
    with Running(spark, plan, broker) as running:
        until(lambda: running.records_in() == 10, "the first records")
        _delete(broker, "coming-web")
        publish(broker.kafka, "coming-wide", [b"meanwhile"], 1)
        until(lambda: running.records_in() == 11, "what came without the stream that is gone")
        make_stream(broker.kafka, "coming-web", 1)
        publish(broker.kafka, "coming-web", [b"new"] * 20, 1)
        until(lambda: not running.thread.is_alive(), "the end of the run")
    (told,) = running.failures
    assert "or delete that stream and create it under another name" in str(told)

    _delete(broker, "coming-web")
    make_stream(broker.kafka, "coming-west", 1)
    publish(broker.kafka, "coming-west", [b"new"] * 20, 1)
    with Running(spark, plan, broker) as running:
        until(lambda: running.records_in() == 20, "the stream under another name")
    assert running.failures == []


def _reading(directory: Path, name: str, source: str) -> Plan:
    text = PIPELINE.replace("name: placed", f"name: {name}").replace("stream: placed-web", source)
    return _plan(directory, text.replace("./locked/", "./"))


def _delete(broker: BrokerProcess, stream: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.delete_topics([stream])[stream].result(WAIT_S)
    until(lambda: stream not in admin.list_topics(timeout=WAIT_S).topics, "the stream is gone")


def test_a_checkpoint_whose_disk_is_full_is_waited_for(
    spark: Any, broker: BrokerProcess, tmp_path: Path, small_disk: Path
) -> None:
    """It ended the run with an error that named no file, and what a sink could not note was its dead letter."""
    text = PIPELINE.replace("placed", "full").replace("./locked/", "./")
    plan = _plan(tmp_path, text.replace("name: full", f"name: full\ncheckpoint: {small_disk / 'checkpoint'}"))
    make_stream(broker.kafka, "full-web", 1)
    publish(broker.kafka, "full-web", [b"before"] * 5, 1)
    with Running(spark, plan, broker) as running:
        until(lambda: running.delivered() == 5, "what was there before")
        filler = small_disk / "filler"
        _fill(filler)
        publish(broker.kafka, "full-web", [b"meanwhile"] * 20, 1)
        told = (
            f"the disk of the checkpoint {small_disk / 'checkpoint'} is full: free some space there, and it continues"
        )
        until(lambda: sum(told in line for line in running.said.lines) > 1, "the sentence, and once more")
        filler.unlink()
        until(lambda: running.delivered() == 25, "what came meanwhile")
    assert running.failures == []
    assert sum(sink.dead for sink in running.sinks()) == 0


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4_096))
