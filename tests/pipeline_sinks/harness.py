"""Delivers events through a sink's task as a delivery does, attempt by attempt, without Spark."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from tests.pipeline_sinks.server import Contract

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.registry import read_plan
from logboom.pipeline.run.sink_contents import held_by
from logboom.pipeline.sinks.base import Refused, RefusedLetters, SinkContext, SinkWriter, durable_already
from logboom.pipeline.sinks.bulk.requests import RequestSizeLimits
from logboom.pipeline.sinks.bulk.task import BulkTask, Report
from logboom.pipeline.sinks.read_back import Held
from logboom.pipeline.sinks.registry import type_of
from logboom.pipeline.sinks.repeats.ranges import Done

EDGE = "_p.parsed"
QUICK = "timeout: 400ms, retry_for: 20s"
"""Keys that make faults show soon."""


def sink_of(keys: str) -> Any:
    """The node of a sink of a file, read back from its plan as a pinned one is."""
    plan = compile_pipeline(pipeline_of(keys), "p.yaml")
    sink: Sink = read_plan(plan.to_json()).sinks[0]
    assert sink == plan.sinks[0]
    return sink


def pipeline_of(keys: str) -> str:
    return (
        "name: p\nsources: {web: {type: stream, stream: web}}\n"
        "transforms: {parsed: {type: parse, inputs: [web], rules: [{format: json}]}}\n"
        f"sinks:\n  out: {{inputs: [parsed], {keys}}}\n"
    )


def held_in(keys: str, since_ms: int, secret: str = Contract.secret) -> list[Held]:
    """What a sink with these keys says that it holds since then."""
    plan = compile_pipeline(pipeline_of(keys), "p.yaml")
    nobody = StreamAdmin("127.0.0.1:1")  # servers are asked, and not the log
    return list(held_by(plan, plan.sinks[0], nobody, since_ms, lambda ref: secret))


def event(number: int, **fields: Any) -> dict[str, Any]:
    """One event, of the record with this offset."""
    return {
        "attributes": {"n": number, "http": {"status": 200}},
        "time": f"2026-11-23T07:00:{number // 1000 % 60:02}.{number % 1000:03}Z",
        "observed_time": "2026-11-23T07:00:01Z",
        "severity_number": 9,
        "severity_text": "INFO",
        "service": f"shop-{number % 2}",
        "host": "h1",
        "body": f"line {number}",
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "event_id": f"web:0:{number}",
        "source": "web",
        "stream": "web",
        "partition": 0,
        "offset": number,
        "weight": 1.0,
        **fields,
    }


def edge_batch(
    values: Sequence[bytes | Mapping[str, Any] | None], *, first: int = 0, keys: Sequence[bytes | None] | None = None
) -> pa.RecordBatch:
    """Records of the edge's partition 0, whose offsets count from `first`; None is a record without a value."""
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([EDGE] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "key": pa.array(keys or [None] * count, pa.binary()),
            "value": pa.array(
                [one if one is None or isinstance(one, bytes) else json.dumps(one).encode() for one in values],
                pa.binary(),
            ),
        }
    )


class _Collected:
    def __init__(self, rows: list[tuple[bytes]]) -> None:
        self._rows = rows

    def collect(self) -> list[tuple[bytes]]:
        return self._rows


@dataclass
class Rows:
    """Records of an edge in parts, whose tasks run here as Spark runs them: pickled, one after the other."""

    parts: Sequence[pa.RecordBatch]

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> _Collected:  # noqa: N802
        answers = []
        for part in self.parts:
            here = pickle.loads(pickle.dumps(task))
            answers += [(value,) for batch in here(iter([part])) for value in batch.column(0).to_pylist()]
        return _Collected(answers)

    def limit(self, count: int) -> Rows:
        """As Spark has it."""
        assert count == 0
        return Rows([])


def rows(*parts: Sequence[bytes | Mapping[str, Any]]) -> Any:
    """The events of a batch, a task's in each part."""
    first = 0
    batches = []
    for values in parts:
        batches.append(edge_batch(values, first=first))
        first += len(values)
    return Rows(batches)


@dataclass
class Letters:
    """Dead letters that stay here."""

    refused: list[Refused] = field(default_factory=list)
    fails: int = 0
    """So often they cannot be written."""

    def __call__(self, refused: Sequence[Refused]) -> None:
        if self.fails:
            self.fails -= 1
            raise PipelineError("the log is away")
        self.refused += refused

    def ids(self) -> Counter[str]:
        return Counter(str(json.loads(one.value)["event_id"]) for one in self.refused)


def opened(
    sink: Any,
    directory: Path,
    letters: RefusedLetters,
    *,
    secret: str = Contract.secret,
    streams: Mapping[str, str] | None = None,
    notify: Callable[[str], None] = print,
    save: Callable[[], None] = durable_already,
) -> SinkWriter:
    """The sink as a run opens it, with paths below a directory."""
    writer: SinkWriter = type_of(sink).open(
        sink,
        SinkContext(
            resolve=lambda path: directory / path,
            checkpoint=directory / "checkpoint",
            notify=notify,
            write_dead_letters=letters,
            letters=letters,
            secret=lambda ref: secret,
            save=save,
            streams={EDGE: "edge-id"} if streams is None else streams,
        ),
    )
    return writer


@dataclass
class Delivering:
    """A batch on its way, as the writer of a sink has it between attempts."""

    sink: Any
    secrets: dict[str, str]
    letters: Letters = field(default_factory=Letters)
    done: Done = field(default_factory=Done)
    high_water: Mapping[str, int] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)

    def attempt(self, batches: Iterable[pa.RecordBatch]) -> Report:
        """One attempt at the batch."""
        sending = self.sink.sending
        task = BulkTask(
            spec=self.sink,
            secrets=self.secrets,
            limits=RequestSizeLimits(sending.max_events, sending.max_bytes),
            settings=sending.settings(1),
            letters=self.letters,
            done=self.done,
            high_water=self.high_water,
            retried=frozenset(),
        )
        (row,) = [batch.column(0)[0].as_py() for batch in task(batches)]
        report = msgspec.json.decode(row, type=Report)
        self.done = self.done.plus(report.done)
        self.reports.append(report)
        return report

    def until_done(self, batches: Sequence[pa.RecordBatch], attempts: int = 8) -> Report:
        """Attempts until one delivers all that is left."""
        for _ in range(attempts):
            report = self.attempt(batches)
            if report.error is None:
                return report
        raise AssertionError(f"not delivered in {attempts} attempts: {[one.error for one in self.reports]}")

    @property
    def rows(self) -> int:
        return sum(report.rows for report in self.reports)

    @property
    def dead(self) -> int:
        return sum(report.dead for report in self.reports)


def delivering(sink: Any, secret: str) -> Delivering:
    """With this text for each credential of the sink."""
    return Delivering(sink, {ref.id: secret for _, ref in sink.secret_refs})
