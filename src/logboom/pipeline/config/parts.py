"""From the models of sources, transforms, sinks and tests to the nodes of a plan; each part on its own.

It knows one part at a time, and how a test is compiled. Each kind of transform and sink compiles its keys in its own
file. This module must not know the graph.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from logboom.base.settings import KeyPath
from logboom.pipeline.config.model import (
    SOURCES,
    StreamSourceModel,
    TestExpectModel,
    TestInputModel,
    TestModel,
)
from logboom.pipeline.config.streams import check_pattern
from logboom.pipeline.findings import Findings, Part, hint
from logboom.pipeline.plan.names import stream_name_problem
from logboom.pipeline.plan.nodes import (
    ATTEMPTS_DEFAULT,
    DEAD_COLUMNS,
    EVENT_COLUMNS,
    Expression,
    PipelineTest,
    Sink,
    StreamSource,
    TestExpectation,
    TestInput,
    Transform,
)
from logboom.pipeline.sinks import base as sinks
from logboom.pipeline.sinks.base import SinkModel
from logboom.pipeline.sinks.registry import sink_types
from logboom.pipeline.transforms import base as transforms
from logboom.pipeline.transforms.base import TransformModel
from logboom.pipeline.transforms.registry import transform_types

Compiled = TypeVar("Compiled", StreamSource, Transform, Sink, PipelineTest)


def check_stream(findings: Findings, path: KeyPath, name: str) -> None:
    """Kafka's rule for names of topics."""
    problem = stream_name_problem(name)
    if problem is not None:
        findings.problem(path, problem)


def _in_its_file(findings: Findings, path: KeyPath, node: Compiled) -> Compiled:
    """The part with the name of the included file that contains it, if any."""
    file = findings.document.file_of(path)
    return node if file is None else msgspec.structs.replace(node, in_file=file)


def source_part(findings: Findings, name: str, value: object) -> StreamSource | None:
    """One source."""
    path = ("sources", name)
    model = findings.typed_part(SOURCES, path, value)
    if not isinstance(model, StreamSourceModel):
        return None
    streams = (*((model.stream,) if model.stream is not None else ()), *model.streams)
    if bool(streams) == bool(model.pattern) or (model.stream is not None and model.streams):
        findings.problem(path, "needs exactly one of stream, streams and pattern")
        return None
    for stream in streams:
        check_stream(findings, path, stream)
    for stream in sorted({stream for stream in streams if streams.count(stream) > 1}):
        findings.problem(path, f"stream {stream!r} is named twice")
    if model.pattern is not None and not check_pattern(findings, (*path, "pattern"), model.pattern):
        return None
    if not findings.is_sound(path):
        return None
    node = StreamSource(
        name=name,
        line=findings.line(path),
        streams=streams,
        pattern=model.pattern,
        start=model.start,
        on_data_loss=model.on_data_loss,
    )
    return _in_its_file(findings, path, node)


def transform_part(findings: Findings, name: str, value: object) -> Transform | None:
    """One transform, compiled by the kind of transform that its key `type` names."""
    path = ("transforms", name)
    kinds = transform_types()
    model = findings.typed_part({kind.name: kind.model for kind in kinds.values()}, path, value)
    if not isinstance(model, TransformModel):
        return None
    common = transforms.CommonFields(name=name, line=findings.line(path), inputs=tuple(model.inputs))
    # The key `type` may be misspelt; the model is then that of the nearest kind.
    kind = next(kind for kind in kinds.values() if kind.model is type(model))
    node: Transform | None = kind.compile(model, common, Part(findings, path))
    return None if node is None or not findings.is_sound(path) else _in_its_file(findings, path, node)


def sink_part(findings: Findings, name: str, value: object) -> Sink | None:
    """One sink, compiled by the kind of sink that its key `type` names."""
    path = ("sinks", name)
    kinds = sink_types()
    model = findings.typed_part({kind.name: kind.model for kind in kinds.values()}, path, value)
    if not isinstance(model, SinkModel):
        return None
    if model.on_failure == "retry" and model.attempts is not None:
        findings.problem((*path, "attempts"), "has no meaning with on_failure: retry, which retries for ever")
    common = sinks.CommonFields(
        name=name,
        line=findings.line(path),
        inputs=tuple(model.inputs),
        on_failure=model.on_failure or "dead_letter",
        attempts=model.attempts or ATTEMPTS_DEFAULT,
    )
    kind = next(kind for kind in kinds.values() if kind.model is type(model))
    node: Sink | None = kind.compile(model, common, Part(findings, path))
    return None if node is None or not findings.is_sound(path) else _in_its_file(findings, path, node)


@dataclass(frozen=True, slots=True)
class TestPlaces:
    """The names that the tests of a file may use."""

    sources: list[str]
    places: list[str]
    """Edges and sinks."""
    dropped: list[str]
    """Names under which events are dropped."""
    counted_alone: list[str]
    """Names under which only a count of the dropped events is kept."""
    broken: Collection[str]
    """Nodes that could not be compiled: their outputs are unknown."""

    @property
    def known(self) -> list[str]:
        """The values that an expectation may have in `at`."""
        dead = [f"dead:{place}" for place in self.places if "." not in place]
        return [*self.places, "dropped", "dead", *(f"dropped:{name}" for name in dict.fromkeys(self.dropped)), *dead]


TestPlaces.__test__ = False  # type: ignore[attr-defined]


def test_part(findings: Findings, index: int, value: object, there: TestPlaces) -> PipelineTest | None:
    """One test."""
    path: KeyPath = ("tests", index)
    model = findings.part(TestModel, path, value)
    if model is None:
        return None
    single = isinstance(value, dict) and isinstance(value.get("input"), dict)
    inputs = [
        _test_input(findings, (*path, "input") if single else (*path, "input", at), given, there.sources)
        for at, given in enumerate(model.input)
    ]
    single = isinstance(value, dict) and isinstance(value.get("expect"), dict)
    expect = [
        _expectation(findings, (*path, "expect") if single else (*path, "expect", at), wanted, there)
        for at, wanted in enumerate(model.expect)
    ]
    test = PipelineTest(name=model.name, line=findings.line(path), inputs=tuple(inputs), expect=tuple(expect))
    return _in_its_file(findings, path, test)


test_part.__test__ = False  # type: ignore[attr-defined]


def _test_input(findings: Findings, path: KeyPath, model: TestInputModel, sources: list[str]) -> TestInput:
    if model.source not in sources:
        findings.problem((*path, "source"), f"unknown source {model.source!r} ({hint(model.source, sources)})")
    if model.timestamp is not None:
        try:
            datetime.fromisoformat(model.timestamp)
        except ValueError:
            findings.problem((*path, "timestamp"), f"{model.timestamp!r} is not a time such as 2026-11-20T12:00:00Z")
    return TestInput(
        source=model.source,
        line=findings.line(path),
        value=model.value,
        key=model.key,
        headers=tuple(model.headers.items()),
        timestamp=model.timestamp,
    )


def _expectation(findings: Findings, path: KeyPath, model: TestExpectModel, there: TestPlaces) -> TestExpectation:
    name = model.at.removeprefix("dropped:")
    if model.at not in there.known and name.split(".")[0] not in there.broken:
        findings.problem((*path, "at"), f"unknown place {model.at!r} ({hint(model.at, there.known)})")
    if name != model.at and name in there.counted_alone and (model.fields or model.condition is not None):
        message = "events are held before they are dropped there, so a test cannot see them: expect only a count"
        findings.problem((*path, "at"), message)
    columns = EVENT_COLUMNS if not model.at.startswith("dead") else (*EVENT_COLUMNS, *DEAD_COLUMNS)
    names = [name for name, _ in columns]
    for field in model.fields:
        if field not in names and not field.startswith("attributes."):
            findings.problem((*path, "fields", field), f"unknown field {field!r} ({hint(field, names)})")
    if model.condition is not None:
        at = (*path, "condition")
        place = findings.document.problem(at, "")
        sql = Expression(
            sql=model.condition, columns=columns, line=findings.line(at), where=place.where, file=place.file
        )
        findings.expressions.append(sql)
    return TestExpectation(
        at=model.at,
        line=findings.line(path),
        fields=tuple((name, msgspec.json.encode(value).decode()) for name, value in model.fields.items()),
        condition=model.condition,
        count=model.count,
    )
