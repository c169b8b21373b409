"""A batch that has to run again after the pipeline was edited: repaired, continued, or pinned anew on demand."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.pipeline.support import Said, archive_ids, ledger, make_stream, named_file, needs_java, publish, records
from tests.support.server import BrokerProcess
from typer.testing import CliRunner

from logboom.cli.pipeline import pipeline
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.parse.formats.pattern import PatternFormat
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.runner import Runner, RunOptions
from logboom.pipeline.transforms.parse import ParseTransform

pytestmark = [pytest.mark.spark, needs_java]

PIPELINE = """
name: NAME
sources:
  web: {type: stream, stream: NAME-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  chosen: {type: filter, inputs: [parsed], condition: "service CONDITION"}
sinks:
  archive: {type: parquet, inputs: [chosen], path: ./archive}
  out: {type: stream, inputs: [chosen], stream: NAME-out}
"""
ODD, EVEN = "= 'odd'", "= 'even'"


def _plan(directory: Path, name: str, condition: str) -> Plan:
    file = named_file(directory, name, PIPELINE.replace("CONDITION", condition))
    return compile_pipeline(file.read_text(), str(file))


def _lines(numbers: range) -> list[bytes]:
    return [json.dumps({"service": ("even", "odd")[number % 2], "msg": str(number)}).encode() for number in numbers]


def _run(spark: Any, plan: Plan, broker: BrokerProcess) -> Said:
    said = Said()
    Runner(plan, RunOptions(bootstrap=broker.kafka, once=True), said).run_in(spark)
    return said


def _forget_commit(checkpoint: Path, batch: int) -> None:
    """As after a kill between the batch's writes and Spark's note that it is done."""
    commits = checkpoint / "router" / "commits"
    for file in (commits / str(batch), commits / f".{batch}.crc"):
        file.unlink(missing_ok=True)


def _repin(plan: Plan, broker: BrokerProcess, *arguments: str) -> Any:
    return CliRunner().invoke(pipeline, ["repin", plan.file, "-b", broker.kafka, *arguments])


def test_a_batch_that_wrote_nothing_takes_the_repaired_pipeline(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "repaired-web", 2)
    publish(broker.kafka, "repaired-web", _lines(range(10)), 2)
    good = _plan(tmp_path, "repaired", ODD)
    (parse,) = (node for node in good.transforms if isinstance(node, ParseTransform))
    rule = msgspec.structs.replace(parse.rules[0], format=PatternFormat(expressions=("(",), fields=((),)))
    broken = msgspec.structs.replace(
        good, transforms=(msgspec.structs.replace(parse, rules=(rule,)), *good.transforms[1:])
    )
    with pytest.raises(PipelineError, match="missing \\)"):
        _run(spark, broken, broker)
    checkpoint = tmp_path / "checkpoints" / "repaired"
    assert (checkpoint / "pins" / "batches" / "0.json").exists()

    said = _run(spark, good, broker)
    assert "batch 0 had written nothing yet: it runs with the edited pipeline" in said.lines
    assert len(records(broker.kafka, "repaired-out")) == 5
    assert set(archive_ids(tmp_path / "archive").values()) == {1}
    assert sum(archive_ids(tmp_path / "archive").values()) == 5
    assert ledger(checkpoint)["total"]["dropped"] == {"chosen": 5}


def test_a_batch_that_was_written_is_pinned_anew_on_demand_alone(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_stream(broker.kafka, "anew-web", 2)
    publish(broker.kafka, "anew-web", _lines(range(10)), 2)
    checkpoint = tmp_path / "checkpoints" / "anew"
    before = _plan(tmp_path, "anew", ODD)
    _run(spark, before, broker)
    _forget_commit(checkpoint, 0)
    after = _plan(tmp_path, "anew", EVEN)

    asked = _repin(after, broker)
    assert asked.exit_code == 1
    assert "batch 0 was begun before the pipeline was edited; it has written 10 records" in asked.output
    assert "5 in anew-out" in asked.output
    assert "--yes" in str(asked.exception)
    done = _repin(after, broker, "--yes")
    assert done.exit_code == 0, done.output

    _run(spark, after, broker)
    ids = archive_ids(tmp_path / "archive")
    # The first attempt reached the highest offsets; what the second adds below them is not a repeat.
    assert (len(ids), set(ids.values())) == (10, {1})
    bodies = Counter(json.loads(message.value())["body"] for message in records(broker.kafka, "anew-out"))
    assert bodies == Counter(str(number) for number in range(10))

    # The repinned batch itself runs again, with nothing new, then a later one: the archive has each event once.
    _forget_commit(checkpoint, 0)
    publish(broker.kafka, "anew-web", _lines(range(10, 16)), 2)
    _run(spark, after, broker)
    ids = archive_ids(tmp_path / "archive")
    assert (len(ids), set(ids.values())) == (13, {1})
    assert "no batch is waiting to run again" in _repin(after, broker).output


def test_another_pipelines_checkpoint_is_refused_and_a_renamed_one_goes_on(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    def named(name: str) -> Plan:
        text = PIPELINE.replace("NAME", "shared").replace("CONDITION", ODD).replace("name: shared", f"name: {name}")
        file = tmp_path / "shared.yaml"
        file.write_text(f"{text}checkpoint: ./shared\n")
        return compile_pipeline(file.read_text(), str(file))

    make_stream(broker.kafka, "shared-web", 1)
    publish(broker.kafka, "shared-web", _lines(range(10)), 1)
    _run(spark, named("first"), broker)
    with pytest.raises(PipelineError, match="belongs to the pipeline first, not to second"):
        _run(spark, named("second"), broker)
    (tmp_path / "shared" / "pipeline.json").unlink()  # as an earlier version left it
    with pytest.raises(PipelineError, match="belongs to the pipeline first, not to second"):
        Runner(named("second"), RunOptions(bootstrap=broker.kafka), Said()).run()

    publish(broker.kafka, "shared-web", _lines(range(10, 20)), 1)
    renamed = RunOptions(bootstrap=broker.kafka, once=True, renamed_from="first")
    Runner(named("second"), renamed, Said()).run_in(spark)
    _run(spark, named("second"), broker)
    ids = archive_ids(tmp_path / "archive")
    assert (len(ids), set(ids.values())) == (10, {1})
    assert len(records(broker.kafka, "shared-out")) == 10
