"""From the models of sources, transforms, sinks and tests to the nodes of a plan; each part on its own.

It knows one part at a time. It must not know the graph; parse rules are compiled in `compile_rules`.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
import re2

from logboom.base.settings import KeyPath
from logboom.pipeline.config.findings import Findings, hint
from logboom.pipeline.config.model import (
    SOURCES,
    TRANSFORMS,
    FilterModel,
    MaskModel,
    MaskRuleModel,
    ParseModel,
    RouteModel,
    SampleModel,
    StreamSourceModel,
    TestExpectModel,
    TestInputModel,
    TestModel,
)
from logboom.pipeline.config.rules import compile_parse
from logboom.pipeline.config.streams import check_pattern
from logboom.pipeline.mask.batch import engine_fault
from logboom.pipeline.mask.detect import finds_itself
from logboom.pipeline.parse.grok import PatternError, check_search, expand
from logboom.pipeline.plan.names import stream_name_problem
from logboom.pipeline.plan.nodes import (
    ATTEMPTS_DEFAULT,
    DEAD_COLUMNS,
    EVENT_COLUMNS,
    UNMATCHED,
    Expression,
    FilterTransform,
    KeyRef,
    MaskRule,
    MaskTransform,
    PipelineTest,
    Route,
    RouteTransform,
    SampleTransform,
    Sink,
    StreamSource,
    TestExpectation,
    TestInput,
    Transform,
)
from logboom.pipeline.sinks.base import CommonFields, SinkModel
from logboom.pipeline.sinks.registry import sink_types

MASKABLE: Final = ("body", "attributes", "host", "service", "severity_text")
"""Columns a mask may be told to look at, beside `attributes.NAME`."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
_RESERVED_ROUTES: Final = (UNMATCHED,)


def check_stream(findings: Findings, path: KeyPath, name: str) -> None:
    """Kafka's rule for names of topics."""
    problem = stream_name_problem(name)
    if problem is not None:
        findings.problem(path, problem)


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
    return StreamSource(
        name=name,
        line=findings.line(path),
        streams=streams,
        pattern=model.pattern,
        start=model.start,
        on_data_loss=model.on_data_loss,
    )


def transform_part(findings: Findings, name: str, value: object, own: Mapping[str, str]) -> Transform | None:
    """One transform."""
    path = ("transforms", name)
    model = findings.typed_part(TRANSFORMS, path, value)
    line = findings.line(path)
    match model:
        case ParseModel():
            return compile_parse(findings, path, name, model, own)
        case FilterModel():
            at = note(findings, (*path, "condition"), model.condition)
            inputs = tuple(model.inputs)
            return FilterTransform(name=name, line=line, inputs=inputs, condition=model.condition, condition_line=at)
        case MaskModel():
            return _mask(findings, path, name, model, own)
        case SampleModel():
            return _sample(findings, path, name, model)
        case RouteModel():
            return _route(findings, path, name, model)
    return None


def note(findings: Findings, path: KeyPath, sql: str, wants: str = "boolean") -> int:
    """Remember SQL over an event to be checked; its line."""
    line = findings.line(path)
    where = findings.document.problem(path, "").where
    findings.expressions.append(
        Expression(sql=sql, columns=EVENT_COLUMNS, line=line, where=where, wants="any" if wants == "any" else "boolean")
    )
    return line


def _mask(
    findings: Findings, path: KeyPath, name: str, model: MaskModel, own: Mapping[str, str]
) -> MaskTransform | None:
    for index, field in enumerate(model.fields):
        if field not in MASKABLE and not field.startswith("attributes."):
            close = hint(field, [*MASKABLE, "attributes.NAME"])
            findings.problem((*path, "fields", index), f"unknown field {field!r} ({close})")
    if model.key_env is not None and model.key_file is not None:
        findings.problem(path, "needs one of key_env and key_file, not both")
    named = model.key_env is not None or model.key_file is not None
    if not named and any(rule.action == "hash" for rule in model.rules):
        findings.problem(path, "action hash needs a key: name it with key_env or key_file")
    rules = [_mask_rule(findings, (*path, "rules", index), rule, own) for index, rule in enumerate(model.rules)]
    transform = MaskTransform(
        name=name,
        line=findings.line(path),
        inputs=tuple(model.inputs),
        rules=tuple(rule for rule in rules if rule is not None),
        fields=tuple(dict.fromkeys(model.fields)),
        key=KeyRef(env=model.key_env, file=model.key_file) if named else None,
    )
    fault = engine_fault(transform)
    if fault is not None:
        findings.problem((*path, "rules"), f"cannot be looked for together: {fault}")
    return transform


def _mask_rule(findings: Findings, path: KeyPath, model: MaskRuleModel, own: Mapping[str, str]) -> MaskRule | None:
    label = model.name or model.kind
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,39}", label):
        findings.problem((*path, "name"), f"{label!r} should be letters, digits and '_', starting with a letter")
    if model.keep is not None and model.action != "keep_last":
        findings.problem((*path, "keep"), f"goes with action keep_last, not with {model.action}")
    if model.replacement is not None and model.action != "redact":
        findings.problem((*path, "replacement"), f"goes with action redact, not with {model.action}")
    if (model.pattern is not None) != (model.kind == "pattern"):
        findings.problem(path, "kind pattern and key 'pattern' go together")
        return None
    pattern = None if model.pattern is None else _mask_pattern(findings, (*path, "pattern"), model, own)
    rule = MaskRule(
        label=label,
        line=findings.line(path),
        kind=model.kind,
        action=model.action,
        pattern=pattern,
        keep=4 if model.keep is None else model.keep,
        replacement=model.replacement,
    )
    if (rule.kind != "pattern" or pattern is not None) and finds_itself(rule):
        findings.problem(path, "finds again what it puts in place of a find; choose another replacement or pattern")
    return rule


def _mask_pattern(findings: Findings, path: KeyPath, model: MaskRuleModel, own: Mapping[str, str]) -> str | None:
    """The expression whose group `secret` says what is replaced."""
    text = model.pattern or ""
    try:
        expanded = expand(text, own, rename=False)
        check_search(expanded.expression)
    except PatternError as error:
        findings.problem(path, f"pattern {error}")
        return None
    compiled = re2.compile(expanded.expression)
    if compiled.search("") is not None:
        findings.problem(path, "pattern matches the empty text, so it would match everywhere")
        return None
    if "secret" in compiled.groupindex:
        return expanded.expression
    if compiled.groups > 1:
        findings.problem(path, "pattern has several groups; name the one that is the secret: (?P<secret>...)")
        return None
    return expanded.expression


def _sample(findings: Findings, path: KeyPath, name: str, model: SampleModel) -> SampleTransform | None:
    if (model.rate is None) == (model.ratio is None):
        findings.problem(path, "needs exactly one of rate (one in so many) and ratio (this part)")
        return None
    rate = model.rate if model.rate is not None else 1 / model.ratio if model.ratio else 1.0
    at = note(findings, (*path, "key"), model.key, "any")
    if model.exclude is not None:
        at = note(findings, (*path, "exclude"), model.exclude)
    return SampleTransform(
        name=name,
        line=findings.line(path),
        inputs=tuple(model.inputs),
        rate=rate,
        key=model.key,
        exclude=model.exclude,
        condition_line=at,
    )


def _route(findings: Findings, path: KeyPath, name: str, model: RouteModel) -> RouteTransform:
    routes: list[Route] = []
    for route, condition in model.routes.items():
        at = (*path, "routes", route)
        if route in _RESERVED_ROUTES:
            findings.problem(at, f"{route!r} is the output for what no condition takes; choose another name")
        elif not NAME.fullmatch(route):
            findings.problem(at, f"{route!r} is no name (letters, digits, '_' and '-', starting with a letter)")
        routes.append(Route(name=route, line=note(findings, at, condition), condition=condition))
    return RouteTransform(name=name, line=findings.line(path), inputs=tuple(model.inputs), routes=tuple(routes))


def sink_part(findings: Findings, name: str, value: object) -> Sink | None:
    """One sink, compiled by the kind of sink that its key `type` names."""
    path = ("sinks", name)
    kinds = sink_types()
    model = findings.typed_part({kind.name: kind.model for kind in kinds.values()}, path, value)
    if not isinstance(model, SinkModel) or not isinstance(value, dict):
        return None
    if model.on_failure == "retry" and model.attempts is not None:
        findings.problem((*path, "attempts"), "has no meaning with on_failure: retry, which tries for ever")
    common = CommonFields(
        name=name,
        line=findings.line(path),
        inputs=tuple(model.inputs),
        on_failure=model.on_failure or "dead_letter",
        attempts=model.attempts or ATTEMPTS_DEFAULT,
    )
    # The key `type` may be misspelt; the model is then that of the nearest kind.
    kind = next(kind for kind in kinds.values() if kind.model is type(model))
    return kind.compile(model, common, _SinkReport(findings, path))


class _SinkReport:
    """Where the file of a sink tells what is wrong with a key of it."""

    def __init__(self, findings: Findings, path: KeyPath) -> None:
        self._findings = findings
        self._path = path

    def problem(self, key: str, message: str) -> None:
        self._findings.problem((*self._path, key), message)

    def unknown(self, key: str, what: str, word: str, known: Sequence[str]) -> None:
        self._findings.problem((*self._path, key), f"unknown {what} {word!r} ({hint(word, known)})")


def test_part(
    findings: Findings, index: int, value: object, sources: list[str], places: list[str]
) -> PipelineTest | None:
    """One test; `places` are the edges and sinks where an expectation may stand."""
    path: KeyPath = ("tests", index)
    model = findings.part(TestModel, path, value)
    if model is None:
        return None
    single = isinstance(value, dict) and isinstance(value.get("input"), dict)
    inputs = [
        _test_input(findings, (*path, "input") if single else (*path, "input", at), given, sources)
        for at, given in enumerate(model.input)
    ]
    single = isinstance(value, dict) and isinstance(value.get("expect"), dict)
    expect = [
        _expectation(findings, (*path, "expect") if single else (*path, "expect", at), wanted, places)
        for at, wanted in enumerate(model.expect)
    ]
    return PipelineTest(name=model.name, line=findings.line(path), inputs=tuple(inputs), expect=tuple(expect))


test_part.__test__ = False  # type: ignore[attr-defined]


def _test_input(findings: Findings, path: KeyPath, model: TestInputModel, sources: list[str]) -> TestInput:
    if model.source not in sources:
        findings.problem((*path, "source"), f"unknown source {model.source!r} ({hint(model.source, sources)})")
    if model.timestamp is not None:
        try:
            datetime.fromisoformat(model.timestamp)
        except ValueError:
            findings.problem((*path, "timestamp"), f"{model.timestamp!r} is no time as 2026-11-20T12:00:00Z")
    return TestInput(
        source=model.source,
        line=findings.line(path),
        value=model.value,
        key=model.key,
        headers=tuple(model.headers.items()),
        timestamp=model.timestamp,
    )


def _expectation(findings: Findings, path: KeyPath, model: TestExpectModel, places: list[str]) -> TestExpectation:
    nodes = [place for place in places if "." not in place]
    known = [*places, "dropped", "dead", *(f"dropped:{node}" for node in nodes), *(f"dead:{node}" for node in nodes)]
    if model.at not in known:
        findings.problem((*path, "at"), f"unknown place {model.at!r} ({hint(model.at, known)})")
    columns = EVENT_COLUMNS if not model.at.startswith("dead") else (*EVENT_COLUMNS, *DEAD_COLUMNS)
    names = [name for name, _ in columns]
    for field in model.fields:
        if field not in names and not field.startswith("attributes."):
            findings.problem((*path, "fields", field), f"unknown field {field!r} ({hint(field, names)})")
    if model.condition is not None:
        at = (*path, "condition")
        where = findings.document.problem(at, "").where
        sql = Expression(sql=model.condition, columns=columns, line=findings.line(at), where=where)
        findings.expressions.append(sql)
    return TestExpectation(
        at=model.at,
        line=findings.line(path),
        fields=tuple((name, msgspec.json.encode(value).decode()) for name, value in model.fields.items()),
        condition=model.condition,
        count=model.count,
    )
