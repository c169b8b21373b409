"""With which plan a batch runs that was begun before an edit; the log is real, Spark's files are written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.mask.rules import MaskRule
from logboom.pipeline.parse.formats.text import TextFormat
from logboom.pipeline.parse.rule import ParseRule
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import KeyRef, Plan, StreamSource
from logboom.pipeline.run.batch_planner import BatchPlanner, KeyChangedError
from logboom.pipeline.run.outputs import output_streams
from logboom.pipeline.sinks.console import ConsoleSink
from logboom.pipeline.sinks.stream import StreamSink
from logboom.pipeline.transforms.mask import MaskTransform
from logboom.pipeline.transforms.parse import ParseTransform

SECRETS = {"env:KEY": b"an old key of some length"}
ORIGIN = "web/0/7"
"""A record of batch 3 below, which has the offsets 5 to 9 of the partition."""


def _plan(name: str, label: str = "json") -> Plan:
    rule = ParseRule(label=label, line=1, format=TextFormat())
    parse = ParseTransform(name="parsed", line=1, inputs=("web",), rules=(rule,))
    mask = MaskRule(label="email", line=1, kind="email", action="hash")
    key = KeyRef(env="KEY")
    masked = MaskTransform(name="masked", line=1, inputs=("parsed",), rules=(mask,), key=key)
    return Plan(
        name=name,
        file="pipeline.yaml",
        checkpoint="c",
        sources=(StreamSource(name="web", line=1, streams=("web",)),),
        transforms=(parse, masked),
        sinks=(
            ConsoleSink(name="screen", line=1, inputs=("masked",)),
            StreamSink(name="out", line=1, inputs=("masked",), stream=f"{name}-out"),
        ),
    )


class Checkpoint:
    """The checkpoint of a pipeline whose batch 3 was planned and not committed."""

    def __init__(self, directory: Path, bootstrap: str, name: str) -> None:
        self.name = name
        self.said: list[str] = []
        self.secrets: Mapping[str, bytes] = SECRETS
        self._directory = directory
        self._admin = StreamAdmin(bootstrap)
        self._bootstrap = bootstrap
        self.outputs = self._admin.ensure(dict.fromkeys(output_streams(_plan(name)), 2))
        for folder in ("offsets", "commits"):
            (directory / "router" / folder).mkdir(parents=True)
        for batch, end in ((2, 5), (3, 10)):
            sources = f"web_77:{json.dumps({'web': {'0': end}})}"
            (directory / "router" / "offsets" / str(batch)).write_text(f"v2\n{{}}\n{sources}\n")
        (directory / "router" / "commits" / "2").write_text("v1\n{}")

    def planner(self, plan: Plan | None = None) -> BatchPlanner:
        """As a new process would make it."""
        plan = plan or _plan(self.name)
        return BatchPlanner(plan, self._admin, self._directory, lambda refs: self.secrets, self.said.append)

    def began(self) -> None:
        assert self.planner().choose(3, self.outputs).generation == 0

    def edited(self) -> Plan:
        return _plan(self.name, "another")

    def write(
        self, stream: str, value: bytes, headers: Mapping[str, str] | None = None, key: bytes | None = None
    ) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        pairs: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in (headers or {}).items()]
        producer.produce(stream, value=value, key=key, headers=pairs, partition=1)
        assert producer.flush(WAIT_S) == 0

    def trim(self, stream: str) -> None:
        self._admin.delete_before({(stream, 1): 1})[stream, 1].result(WAIT_S)


@pytest.fixture
def checkpoint(request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path) -> Checkpoint:
    name = request.node.name.removeprefix("test_").translate(str.maketrans("[]", "--"))[:100]
    return Checkpoint(tmp_path / "checkpoint", broker.kafka, name)


def test_a_batch_that_runs_again_without_an_edit_keeps_its_pin(checkpoint: Checkpoint) -> None:
    checkpoint.began()
    checkpoint.write(f"{checkpoint.name}-out", b"{}", {names.HEADER_ORIGIN: ORIGIN})
    checkpoint.began()
    assert checkpoint.said == []


def test_a_batch_that_wrote_nothing_takes_the_edited_plan(checkpoint: Checkpoint) -> None:
    checkpoint.write(f"{checkpoint.name}-out", b"{}", {names.HEADER_ORIGIN: "web/0/4"})  # of an earlier batch
    checkpoint.began()
    pin = checkpoint.planner(checkpoint.edited()).choose(3, checkpoint.outputs)
    assert (pin.plan, pin.generation) == (checkpoint.edited(), 1)
    # Killed before its first write and edited once more.
    assert checkpoint.planner().choose(3, checkpoint.outputs).generation == 2


@pytest.mark.parametrize("place", ["out", "edge", "dead"])
def test_one_record_anywhere_keeps_the_plan(checkpoint: Checkpoint, place: str) -> None:
    checkpoint.began()
    origin = json.dumps({"stream": "web", "partition": 0, "offset": 7}).encode()
    match place:
        case "out":
            checkpoint.write(f"{checkpoint.name}-out", b"a body", {names.HEADER_ORIGIN: ORIGIN})
        case "edge":
            checkpoint.write(names.edge_stream(checkpoint.name, "masked"), origin)
        case _:
            checkpoint.write(names.dead_stream(checkpoint.name, "parsed"), b"a line", {names.HEADER_ORIGIN: ORIGIN})
    pin = checkpoint.planner(checkpoint.edited()).choose(3, checkpoint.outputs)
    assert (pin.plan, pin.generation) == (_plan(checkpoint.name), 0)
    assert "was partly written before the pipeline was edited" in checkpoint.said[0]
    written = checkpoint.planner(checkpoint.edited()).unfinished()
    assert written is not None
    assert (written.batch, written.plan_changed, sum(written.records.values())) == (3, True, 1)


def test_what_others_wrote_does_not_count(checkpoint: Checkpoint) -> None:
    checkpoint.began()
    out, edge = f"{checkpoint.name}-out", names.edge_stream(checkpoint.name, "masked")
    checkpoint.write(out, b"of a program")
    checkpoint.write(out, b"{}", {names.HEADER_ORIGIN: "web/0/10"})
    checkpoint.write(out, b"{}", {names.HEADER_ORIGIN: "other/0/7"})
    checkpoint.write(out, b"{}", {names.HEADER_ORIGIN: "no origin"})
    origin = json.dumps({"stream": "web", "partition": 0, "offset": 7}).encode()
    checkpoint.write(edge, origin, {names.HEADER_RETRY_OF: "p.dead.screen/0/0"}, names.RETRY_KEY + b"p.dead.screen/0/0")
    assert checkpoint.planner(checkpoint.edited()).choose(3, checkpoint.outputs).generation == 1


def test_records_that_were_delivered_and_deleted_count(checkpoint: Checkpoint) -> None:
    checkpoint.began()
    edge = names.edge_stream(checkpoint.name, "masked")
    checkpoint.write(edge, json.dumps({"stream": "web", "partition": 0, "offset": 7}).encode())
    checkpoint.trim(edge)
    assert checkpoint.planner(checkpoint.edited()).choose(3, checkpoint.outputs).generation == 0


def test_a_batch_does_not_run_again_with_another_mask_key(checkpoint: Checkpoint) -> None:
    checkpoint.began()
    checkpoint.write(f"{checkpoint.name}-out", b"{}", {names.HEADER_ORIGIN: ORIGIN})
    checkpoint.secrets = {"env:KEY": b"a new key of some length"}
    with pytest.raises(KeyChangedError, match="batch 3 was partly written with another mask key in KEY"):
        checkpoint.planner().choose(3, checkpoint.outputs)
    planner = checkpoint.planner()
    written = planner.unfinished()
    assert written is not None
    assert written.plan_changed
    planner.repin(3)
    assert checkpoint.planner().choose(3, checkpoint.outputs).generation == 1
    assert checkpoint.planner().choose(4, checkpoint.outputs).generation == 0


def test_a_new_mask_key_is_taken_where_nothing_was_written(checkpoint: Checkpoint) -> None:
    checkpoint.began()
    checkpoint.secrets = {"env:KEY": b"a new key of some length"}
    assert checkpoint.planner().choose(3, checkpoint.outputs).generation == 1
