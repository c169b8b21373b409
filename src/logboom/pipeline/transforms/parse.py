"""The transform `parse`: turns raw records into events.

The work on columns is `logboom.pipeline.parse`; what lines look like belongs to formats, `parse.formats`. Must not know
any particular format.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logboom.base.settings import nearest
from logboom.pipeline.event.record_batch import with_column
from logboom.pipeline.findings import Part, hint
from logboom.pipeline.normalise.fields import SLOTS
from logboom.pipeline.normalise.severity import severity_of_name
from logboom.pipeline.normalise.times import TimeFormatError, compile_time_format
from logboom.pipeline.parse.batch import LeftOver, parse_batch
from logboom.pipeline.parse.formats.base import NO_DEFAULTS, RuleModel
from logboom.pipeline.parse.formats.pattern import PatternFormat, compile_patterns
from logboom.pipeline.parse.formats.registry import format_types, read_format
from logboom.pipeline.parse.record_fields import HEADER, RECORD_PARTS, with_record_fields
from logboom.pipeline.parse.rule import ParseRule
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.names import NODE_NAME
from logboom.pipeline.plan.nodes import WHEN_COLUMNS, KernelTransform, failed_column
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.decode_events import ArchivedTransform

DEFAULT_FIELDS: Final = ("service", "host", "severity")
"""What `defaults` may fill."""


class ParseModel(TransformModel):
    """Lines to events."""

    type: Literal["parse"]
    rules: list[Any] = Field(min_length=1)
    """Tried in order; the first that applies and parses wins. Their keys are below."""

    otherwise: Literal["dead", "keep"] = "dead"
    """What happens to a line no rule reads."""

    blank_lines: Literal["dead", "drop", "keep"] = "dead"
    """What happens to a line of blanks alone: to the dead letters, dropped and counted, or an event without a body."""

    drop: dict[str, str] = Field(default_factory=dict)
    """Name, and SQL over the record that drops it before any rule reads it; counted under `PARSE.NAME`."""

    from_record: dict[str, str] = Field(default_factory=dict)
    """Attribute, and what of the record it gets: `key`, `headers`, `header.NAME` or `timestamp`."""


class DropRule(msgspec.Struct, frozen=True, kw_only=True):
    """Records that leave before they are parsed, counted under PARSE.NAME."""

    name: str
    line: int
    when: str
    when_column: str


class ParseTransform(KernelTransform, frozen=True, kw_only=True, tag="parse"):
    """Raw records in, events out; as many rows leave it as come in, some of them dead."""

    reads_records: ClassVar[bool] = True

    rules: tuple[ParseRule, ...]
    otherwise: Literal["dead", "keep"] = "dead"
    """`keep`: a line no rule can read becomes an event whose body is the line."""
    blank_lines: Literal["dead", "drop", "keep"] = "dead"
    """Lines of blanks alone: as any line no rule reads, dropped under this name, or events with an empty body."""
    drop: tuple[DropRule, ...] | msgspec.UnsetType = msgspec.UNSET
    """Records that are dropped before any rule reads them. Left out of a plan that has none, as before it was there."""
    from_record: tuple[tuple[str, str], ...] | msgspec.UnsetType = msgspec.UNSET
    """Attributes, and what of the record each is filled with: see `parse.record_fields`."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        return tuple(
            Dial(setting=rule.name, name=f"{self.name}.{rule.name}", kind="switch", value=True)
            for rule in self.drop or ()
        )

    def turned(self, values: DialValues) -> Self:
        left = tuple(rule for rule in self.drop or () if values.get(rule.name, True))
        return msgspec.structs.replace(self, drop=left or msgspec.UNSET)

    @property
    def record_conditions(self) -> tuple[tuple[str, str], ...]:
        of_rules = (
            (rule.when_column, rule.when)
            for rule in self.rules
            if rule.when_column is not None and rule.when is not None
        )
        return (*of_rules, *((rule.when_column, rule.when) for rule in self.drop or ()))

    @property
    def failure_labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(label for label, *_ in self._failing()))

    def _failing(self) -> Iterator[tuple[str, str, str | None]]:
        """Conditions that Spark evaluates, and that can so fail: name, column, and the source that they are for."""
        for rule in self.rules:
            if rule.when is not None and rule.when_column is not None and _is_spark_s(rule.when):
                yield f"{self.name}.{rule.label}", rule.when_column, rule.source
        for dropping in self.drop or ():
            if _is_spark_s(dropping.when):
                yield f"{self.name}.{dropping.name}", dropping.when_column, None

    def _with_failures(self, parsed: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The events with a column for each name that counts, by row, how many conditions failed."""
        counts = {label: np.zeros(batch.num_rows, np.int32) for label in self.failure_labels}
        for label, column, source in self._failing():
            failed = batch.column(column).is_null()
            if source is not None:
                failed = pc.and_(failed, pc.equal(batch.column("source"), source))
            counts[label] += failed.to_numpy(zero_copy_only=False)
        for label, counted in counts.items():
            parsed = with_column(parsed, failed_column(label), pa.array(counted))
        return parsed

    @property
    def drop_rules(self) -> tuple[str, ...]:
        blank = (self.name,) if self.blank_lines == "drop" else ()
        return (*blank, *(f"{self.name}.{rule.name}" for rule in self.drop or ()))

    def run(self, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
        left_over = LeftOver(self.otherwise, self.blank_lines)
        parsed = parse_batch(
            self.rules, left_over, self.name, batch, tuple(rule.when_column for rule in self.drop or ())
        )
        parsed = self._with_failures(parsed, batch)
        return parsed if not self.from_record else with_record_fields(parsed, batch, self.from_record)


def _is_spark_s(sql: str) -> bool:
    return simple_condition(sql, WHEN_COLUMNS) is None


def _compile(model: ParseModel, common: CommonFields, part: Part) -> ParseTransform:
    """The transform; a rule with problems is left out of it."""
    rules = [
        _rule(value, part.at("rules", index), f"when_{common['name']}_{index}")
        for index, value in enumerate(model.rules)
    ]
    return ParseTransform(
        **common,
        rules=tuple(rule for rule in rules if rule is not None),
        otherwise=model.otherwise,
        blank_lines=model.blank_lines,
        drop=_drop_rules(model, common["name"], part) or msgspec.UNSET,
        from_record=_from_record(model, part) or msgspec.UNSET,
    )


def _drop_rules(model: ParseModel, name: str, part: Part) -> tuple[DropRule, ...]:
    found = []
    for index, (rule, when) in enumerate(model.drop.items()):
        at = part.at("drop", rule)
        if not NODE_NAME.fullmatch(rule):
            at.problem((), f"{rule!r} is not a valid name (letters, digits, '_' and '-', starting with a letter)")
        line = at.expression((), when, WHEN_COLUMNS)
        found.append(DropRule(name=rule, line=line, when=when, when_column=f"drop_{name}_{index}"))
    return tuple(found)


def _from_record(model: ParseModel, part: Part) -> tuple[tuple[str, str], ...]:
    for attribute, what in model.from_record.items():
        if what not in RECORD_PARTS and (not what.startswith(HEADER) or what == HEADER):
            part.unknown(("from_record", attribute), "part of a record", what, [*RECORD_PARTS, f"{HEADER}NAME"])
    return tuple(model.from_record.items())


def _rule(value: object, part: Part, when_column: str) -> ParseRule | None:
    kinds = format_types()
    model = part.findings.typed_part({name: kind.model for name, kind in kinds.items()}, part.path, value, "format")
    if not isinstance(model, RuleModel):
        return None
    _check_names(model, part)
    _check_time(model, part)
    texts = _severity_texts(model, part)
    if model.when is not None:
        part.expression("when", model.when, WHEN_COLUMNS)
    # A misspelt format has been reported, and `model` is then that of the nearest one.
    kind = kinds[model.format]
    form, body_pattern = kind.compile(model, part), _body_pattern(model, part)
    if form is None or not part.findings.is_sound(part.path):
        return None
    named = kinds.get(model.body_format or "")  # an unknown one has been reported
    inner = NO_DEFAULTS if named is None else named.defaults
    mapping = {field: tuple(names) for field, names in model.map.items()}
    scale = kind.defaults.severity_scale if inner.severity_scale == "otel" else inner.severity_scale
    return ParseRule(
        label=model.name or model.format,
        line=part.line,
        format=form,
        source=model.source,
        when=model.when,
        when_column=when_column if model.when is not None else None,
        time_formats=tuple(model.time_format or kind.defaults.time_formats),
        timezone=model.timezone or "UTC",
        mapping=tuple({**dict(inner.mapping), **dict(kind.defaults.mapping), **mapping}.items()),
        defaults=tuple(model.defaults.items()),
        severity_texts=texts,
        severity_scale=model.severity.numbers or scale,
        body_format=model.body_format,
        body_pattern=msgspec.UNSET if body_pattern is None else body_pattern,
    )


def _body_pattern(model: RuleModel, part: Part) -> PatternFormat | None:
    if model.body_pattern is None:
        return None
    if model.body_format is not None:
        part.problem("body_pattern", "says how bodies are read, and so does body_format: leave one out")
    if not model.body_pattern:
        part.problem("body_pattern", "is empty: give an expression, or leave the key out")
    return compile_patterns("body_pattern", tuple(model.body_pattern), part.patterns, part.at("body_pattern"))


def _check_names(model: RuleModel, part: Part) -> None:
    for field in model.map:
        if field not in SLOTS:
            part.unknown(("map", field), "field", field, SLOTS)
    for field in model.defaults:
        if field not in DEFAULT_FIELDS:
            part.unknown(("defaults", field), "field", field, DEFAULT_FIELDS)
    inner = [name for name, kind in format_types().items() if kind.of_bodies is not None]
    if model.body_format is not None and model.body_format not in inner:
        part.unknown("body_format", "format of a body", model.body_format, inner)


def _check_time(model: RuleModel, part: Part) -> None:
    for form in model.time_format or ():
        try:
            compile_time_format(form)
        except TimeFormatError as error:
            part.problem("time_format", str(error))
    if model.timezone is not None:
        try:
            ZoneInfo(model.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            close = nearest(model.timezone, sorted(available_timezones()))
            advice = f"did you mean {close!r}?" if close else "names are those of IANA, such as Europe/Berlin"
            part.problem("timezone", f"unknown timezone {model.timezone!r} ({advice})")


def _severity_texts(model: RuleModel, part: Part) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for text, meant in model.severity.texts.items():
        number = meant if isinstance(meant, int) else severity_of_name(meant)
        if number is None or not 1 <= number <= 24:
            message = f"{meant!r} is not a severity (1 to 24, or a name such as INFO, WARN2, ERROR)"
            part.problem(("severity", "texts", text), message)
        else:
            found.append((text.lower(), number))
    return tuple(found)


def _check_inputs(node: ParseTransform, part: Part, broken: Container[str]) -> None:
    """Each rule's source is an input, and each input has a rule that may read its records."""
    for rule in node.rules:
        if rule.source is not None and rule.source not in node.inputs and rule.source not in broken:
            message = f"rule {rule.label!r}: source {rule.source!r} is not an input of this parse"
            part.problem(_rule_key(part, rule.line), f"{message} ({hint(rule.source, node.inputs)})")
    for edge in node.inputs:
        if not any(rule.source in (None, edge) for rule in node.rules):
            part.warning((), f"no rule applies to records of {edge!r}")


def _rule_key(part: Part, line: int) -> tuple[str | int, ...]:
    """The keys of the rule that begins in this line."""
    rules = (*part.path, "rules")
    paths = (path for path, at in part.findings.document.lines.items() if path[: len(rules)] == rules and at == line)
    found = next((path for path in paths if len(path) == len(rules) + 1), rules)
    return found[len(part.path) :]


def _decode(kind: type[Any], tree: Any) -> Any:
    """The only field of a rule that is not plain data is its format."""
    return read_format(tree)


TRANSFORM: Final = TransformType(
    "parse",
    ParseModel,
    ParseTransform,
    _compile,
    check_inputs=_check_inputs,
    decode=_decode,
    replayed_nodes=(ArchivedTransform,),
)
