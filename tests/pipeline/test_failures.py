"""What a person reads when a run fails: the cause in one sentence, with its place in the pipeline's file."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.pipeline.support import Said, make_stream, needs_java, publish
from tests.support.server import BrokerProcess

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.parse.formats.pattern import PatternFormat
from logboom.pipeline.plan.nodes import Plan
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
