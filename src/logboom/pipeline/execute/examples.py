"""Runs the examples that stand in a pipeline's own file, through the very steps that production takes.

All records of all tests go through one Spark job; each is known by its offset. An edge that a test looks at is tapped.

Knows plans, flows and how a record is compared with what was expected of it. Must not know the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.execute.flow import Flow, tried
from logboom.pipeline.plan.layout import TRUE, Layout, Place
from logboom.pipeline.plan.nodes import (
    DEAD_COLUMNS,
    EVENT_COLUMNS,
    RAW_COLUMNS,
    PipelineTest,
    Plan,
    Sink,
    StreamSource,
    TestExpectation,
    TestInput,
)
from logboom.pipeline.route.rows import AT

ARRIVAL: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When a test's record came, where the test does not say."""
_TAP: Final = "tap of "
_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met."""

    test: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A record where it ended."""

    place: Place
    input: int
    columns: Mapping[str, Any]
    conditions: tuple[bool, ...]
    """For every condition of the file in order."""


def run_examples(spark: SparkSession, plan: Plan, keys: Mapping[str, bytes]) -> list[Failure]:
    """What was not as expected, in the order of the file."""
    given = [given for test in plan.tests for given in test.inputs]
    if not given:
        return []
    conditions = [want.condition for test in plan.tests for want in test.expect if want.condition is not None]
    layout = Layout(_tapped(plan))
    raw = _records(spark, plan, given)
    rows = Flow(spark, layout, keys).rows(raw)
    found = list(_collected(spark, rows, layout, conditions))
    failures: list[Failure] = []
    first = 0
    asked = iter(range(len(conditions)))
    for test in plan.tests:
        mine = [record for record in found if first <= record.input < first + len(test.inputs)]
        for want in test.expect:
            index = next(asked) if want.condition is not None else None
            message = _fault(plan, want, mine, index)
            if message is not None:
                failures.append(Failure(test.name, want.line, message))
        first += len(test.inputs)
    return failures


def _tapped(plan: Plan) -> Plan:
    """The plan with a sink at every edge that an expectation names and that flows on into a transform."""
    sinks = {sink.name for sink in plan.sinks}
    edges = {want.at for test in plan.tests for want in test.expect} - sinks
    known = {edge for node in (*plan.sources, *plan.transforms) for edge in node.outputs}
    taps = tuple(Sink(name=f"{_TAP}{edge}", line=0, inputs=(edge,)) for edge in sorted(edges & known))
    return msgspec.structs.replace(plan, sinks=(*plan.sinks, *taps))


def _records(spark: SparkSession, plan: Plan, given: Sequence[TestInput]) -> DataFrame:
    sources = {source.name: source for source in plan.sources}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in RAW_COLUMNS)
    rows = [
        (
            record.source,
            _stream_of(sources[record.source]),
            0,
            offset,
            datetime.fromisoformat(record.timestamp) if record.timestamp else ARRIVAL,
            None if record.key is None else record.key.encode(),
            None if record.value is None else record.value.encode(),
            [(key, text.encode()) for key, text in record.headers],
        )
        for offset, record in enumerate(given)
    ]
    return spark.createDataFrame(rows, schema).coalesce(1)


def _stream_of(source: StreamSource) -> str:
    return source.streams[0] if source.streams else str(source.pattern)


def _collected(spark: SparkSession, rows: DataFrame, layout: Layout, conditions: Sequence[str]) -> Iterator[_Found]:
    places = {place.code: place for place in layout.places}
    seen = rows.withColumn("attributes_text", F.col("attributes"))
    seen = seen.withColumn("attributes", F.try_parse_json("attributes"))
    verdicts = [(tried(spark, sql) == TRUE).alias(f"met_{number}") for number, sql in enumerate(conditions)]
    names = [name for name, kind in (*EVENT_COLUMNS, *DEAD_COLUMNS) if kind != "variant"]
    for row in seen.select(AT, *names, "attributes_text", *verdicts).collect():
        columns = {name: row[name] for name in names}
        columns["attributes"] = msgspec.json.decode(row["attributes_text"] or "{}")
        met = tuple(bool(row[f"met_{number}"]) for number in range(len(conditions)))
        yield _Found(places[row[AT]], int(row["offset"]), columns, met)


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


def _fault(plan: Plan, want: TestExpectation, records: Sequence[_Found], condition: int | None) -> str | None:
    """What is wrong at a place, or None."""
    here = [record for record in records if _is_at(plan, record.place, want.at)]
    here = list({(record.input, str(record.columns)): record for record in here}.values())
    fitting = [record for record in here if not _differences(want, record, condition)]
    if want.count is not None:
        if len(fitting) == want.count:
            return None
        head = f"expected {want.count} records at {want.at}, found {len(fitting)}"
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
            why = record.columns.get("dead_reason")
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
