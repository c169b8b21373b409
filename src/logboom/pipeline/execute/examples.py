"""Runs the examples in a pipeline's own file through the same steps as production.

The records of all tests are processed together; each is identified by its offset. An edge that a test names gets an
additional sink, a tap. The records are processed in this process (`collecting_here`), or in a Spark session
(`execute.on_spark`) on request.

Knows plans and how a record is compared with an expectation. Must not know the log, nor Spark.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pyarrow as pa

from logboom.pipeline.event.record_batch import whole_batch
from logboom.pipeline.event.schema import HEADERS
from logboom.pipeline.execute.exchange import WALL_MS_MAX
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.execute.stages import PLACE
from logboom.pipeline.execute.stateful import Directories, StatefulBatch
from logboom.pipeline.plan.layout import Layout, Place
from logboom.pipeline.plan.nodes import (
    PipelineTest,
    Plan,
    Sink,
    StreamSource,
    TestExpectation,
    TestInput,
)
from logboom.pipeline.route.rows import AT
from logboom.pipeline.state.memory import Memory

ARRIVAL: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The timestamp of test records that have none in the file."""
_TAP: Final = "tap of "
_SHOWN_MAX: Final = 3


Row = Mapping[str, Any]
"""A record at its final place: its columns, `attributes` as JSON text, and `at`."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The final places of records."""

    rows: Sequence[Row]
    met: Sequence[Sequence[bool]]
    """By condition and row: whether it is true of the row."""
    dropped: Mapping[int, int] = field(default_factory=dict)
    """By place: the number of held events that were dropped there, which have no row."""


Collect = Callable[[Layout, Mapping[str, bytes], pa.RecordBatch, Sequence[str]], Collected]
"""Processes raw records by a layout, and evaluates conditions on the results."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met."""

    test: str
    line: int
    message: str
    file: str | None = None
    """The included file that has the test."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A record and its final place."""

    place: Place
    input: int
    columns: Mapping[str, Any]
    """The differences of the record itself, without its place."""
    conditions: tuple[bool, ...]
    """The results of the file's conditions, in order."""

    @property
    def copy(self) -> tuple[object, ...]:
        """Equal for copies of an event that one output sent to several readers."""
        return (self.place.edge or self.place.code, self.input, str(self.columns))


def run_examples(plan: Plan, keys: Mapping[str, bytes], collect: Collect | None = None) -> list[Failure]:
    """The unmet expectations, in the order of the file. `collect` processes the records; by default in this process."""
    if collect is None:
        with collecting_here() as here:
            return run_examples(plan, keys, here)
    layout = Layout(_tapped(plan))
    tests = [test for test in plan.tests if test.inputs]
    # A state must not combine records of different tests.
    runs = [[test] for test in tests] if layout.stateful() else [tests] if tests else []
    return [failure for run in runs for failure in _run_together(plan, layout, run, keys, collect)]


def _run_together(
    plan: Plan, layout: Layout, tests: Sequence[PipelineTest], keys: Mapping[str, bytes], collect: Collect
) -> Iterator[Failure]:
    given = [given for test in tests for given in test.inputs]
    conditions = [want.condition for test in tests for want in test.expect if want.condition is not None]
    collected = collect(layout, keys, _records(plan, given), conditions)
    found = _found(layout, collected)
    lost = [(layout.place(code), count) for code, count in collected.dropped.items()]
    first = 0
    asked = iter(range(len(conditions)))
    for test in tests:
        end = first + len(test.inputs)
        mine = found if len(tests) == 1 else [record for record in found if first <= record.input < end]
        for want in test.expect:
            index = next(asked) if want.condition is not None else None
            message = _fault(plan, want, mine, lost, index)
            if message is not None:
                yield Failure(test.name, want.line, message, test.in_file or None)
        first = end


def _tapped(plan: Plan) -> Plan:
    """The plan with an additional sink at every edge that an expectation names and that leads to a transform."""
    sinks = {sink.name for sink in plan.sinks}
    edges = {want.at for test in plan.tests for want in test.expect} - sinks
    known = {edge for node in (*plan.sources, *plan.transforms) for edge in node.outputs}
    taps = tuple(Sink(name=f"{_TAP}{edge}", line=0, inputs=(edge,)) for edge in sorted(edges & known))
    return msgspec.structs.replace(plan, sinks=(*plan.sinks, *taps))


def _records(plan: Plan, given: Sequence[TestInput]) -> pa.RecordBatch:
    """The inputs of all tests as records of one partition; the offset is the number of the input."""
    sources = {source.name: source for source in plan.sources}
    columns = {
        "source": pa.array([record.source for record in given], pa.string()),
        "stream": pa.array([_stream_of(sources[record.source]) for record in given], pa.string()),
        "partition": pa.array([0] * len(given), pa.int32()),
        "offset": pa.array(range(len(given)), pa.int64()),
        "timestamp": pa.array([_arrival(record) for record in given], pa.timestamp("us", tz="UTC")),
        "key": pa.array([None if record.key is None else record.key.encode() for record in given], pa.binary()),
        "value": pa.array([None if record.value is None else record.value.encode() for record in given], pa.binary()),
        "headers": pa.array([[(key, text.encode()) for key, text in record.headers] for record in given], HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def _arrival(record: TestInput) -> datetime:
    if record.timestamp is None:
        return ARRIVAL
    moment = datetime.fromisoformat(record.timestamp)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _stream_of(source: StreamSource) -> str:
    return source.streams[0] if source.streams else str(source.pattern)


@contextlib.contextmanager
def collecting_here() -> Iterator[Collect]:
    """Processes records in this process. Inside the block one JVM evaluates all conditions, if one is needed."""
    with LazyCatalyst() as spark:

        def collect(
            layout: Layout, keys: Mapping[str, bytes], raw: pa.RecordBatch, conditions: Sequence[str]
        ) -> Collected:
            flow, found, dropped = LocalFlow(layout, keys, spark), [], Counter[int]()
            for records, batch in example_batches(layout, raw):
                found.append(flow.rows(records, batch))
                dropped += dropped_without_rows(batch)
            rows = whole_batch(pa.Table.from_batches(found))
            return Collected(rows.to_pylist(), flow.conditions(rows, conditions), dropped)

        yield collect


def example_batches(layout: Layout, raw: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, StatefulBatch | None]]:
    """The batches for the examples; each must end before the next begins. There is one batch, and a second one without
    records if the layout has a state; it is marked as the last."""
    if not layout.stateful():
        yield raw, None
        return
    latest_ms = max((int(ARRIVAL.timestamp() * 1_000), *_milliseconds(raw.column("timestamp"))))
    wall_ms = min(latest_ms, WALL_MS_MAX - 1)  # a record from a later year comes from a wrong clock
    with TemporaryDirectory(prefix="logboom-test-") as name:
        directories = Directories(Path(name, "exchange"), Path(name, "segments"))
        for node in layout.stateful():
            (directories.segments / node.name).mkdir(parents=True)
        memory = Memory()
        for number, records in enumerate((raw, raw.slice(0, 0))):
            batch = StatefulBatch(
                layout, memory, number, wall_ms + number, directories, keeps_dropped=True, ends=number > 0
            )
            yield records, batch
            memory = batch.memory()


def dropped_without_rows(batch: StatefulBatch | None) -> Counter[int]:
    """By place the number of held events that a batch of `example_batches` has dropped, which have no row."""
    counts = {} if batch is None else batch.counts
    kinds = ((key.partition(":"), count) for key, count in counts.items())
    return Counter({int(code): count for (kind, _, code), count in kinds if kind == PLACE})


def _milliseconds(times: pa.Array) -> list[int]:
    return [microseconds // 1_000 for microseconds in times.cast(pa.int64()).to_pylist()]


def _found(layout: Layout, collected: Collected) -> list[_Found]:
    places = {place.code: place for place in layout.places}
    found = []
    for number, row in enumerate(collected.rows):
        columns = {name: value for name, value in row.items() if name != AT}
        columns["attributes"] = msgspec.json.decode(row["attributes"] or "{}")
        conditions = tuple(answers[number] for answers in collected.met)
        found.append(_Found(places[row[AT]], int(row["offset"]), columns, conditions))
    return found


def _is_at(plan: Plan, place: Place, at: str) -> bool:
    kind, _, name = at.partition(":")
    if kind in ("dropped", "dead"):
        return place.kind == kind and name in ("", place.node)
    sink = next((sink for sink in plan.sinks if sink.name == at), None)
    if place.kind == "direct":
        return at in (place.node, place.edge)
    if place.kind == "edge":
        return place.edge == at or (sink is not None and place.edge in sink.inputs)
    return False


def _fault(
    plan: Plan,
    want: TestExpectation,
    records: Sequence[_Found],
    lost: Sequence[tuple[Place, int]],
    condition: int | None,
) -> str | None:
    """The fault at a place, or None. `lost`: events of the test without a record."""
    here = [record for record in records if _is_at(plan, record.place, want.at)]
    here = list({record.copy: record for record in here}.values())
    fitting = sum(1 for record in here if not _differences(want, record, condition))
    if not want.fields and condition is None:
        fitting += sum(count for place, count in lost if _is_at(plan, place, want.at))
    if want.count is not None:
        if fitting == want.count:
            return None
        head = f"expected {want.count} records at {want.at}, found {fitting}"
    else:
        if fitting:
            return None
        head = f"expected a record at {want.at}, found none that fits"
    return "\n".join([head, *_explained(plan, want, records, here, condition)])


def _explained(
    plan: Plan, want: TestExpectation, records: Sequence[_Found], here: Sequence[_Found], condition: int | None
) -> Iterator[str]:
    for record in here[:_SHOWN_MAX]:
        for difference in _differences(want, record, condition):
            yield f"  record {record.input}: {difference}"
    if not here:
        for record in records[:_SHOWN_MAX]:
            why = record.columns.get("dead_reason") or record.place.why
            yield f"  record {record.input} is at {_where(record.place)}" + (f": {why}" if why else "")


def _where(place: Place) -> str:
    if place.kind in ("dropped", "dead"):
        return f"{place.kind}:{place.node}"
    return place.edge


def _differences(want: TestExpectation, record: _Found, condition: int | None) -> list[str]:
    found = []
    for name, text in want.fields:
        expected, actual = msgspec.json.decode(text), _value(record.columns, name)
        if not _same(expected, actual):
            found.append(f"{name}: expected {text}, found {msgspec.json.encode(_plain(actual)).decode()}")
    if condition is not None and not record.conditions[condition]:
        found.append(f"not true of it: {want.condition}")
    return found


def _value(columns: Mapping[str, Any], name: str) -> Any:
    if not name.startswith("attributes."):
        return columns.get(name)
    attributes = columns["attributes"]
    path = name.removeprefix("attributes.")
    if path in attributes:  # a name may have dots of its own
        return attributes[path]
    for part in path.split("."):
        attributes = attributes.get(part) if isinstance(attributes, dict) else None
    return attributes


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray) else value


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(actual, datetime) and isinstance(expected, str):
        try:
            return datetime.fromisoformat(expected) == datetime.fromisoformat(_plain(actual))
        except (ValueError, TypeError):
            return False
    return bool(expected == _plain(actual)) and isinstance(expected, bool) == isinstance(actual, bool)


def summary(tests: Sequence[PipelineTest], failures: Sequence[Failure]) -> str:
    """One line for all.

    >>> summary([], [])
    'there are no tests in the file'
    """
    if not tests:
        return "there are no tests in the file"
    failed = len({failure.test for failure in failures})
    return f"{len(tests) - failed} of {len(tests)} tests passed"
