"""From the rules of a parse to what its kernel needs: formats, patterns, times, names.

It knows one rule at a time. It must not know the graph.
"""

from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from logboom.base.settings import KeyPath
from logboom.pipeline.config.findings import Findings, hint
from logboom.pipeline.config.model import ParseModel, RuleModel
from logboom.pipeline.normalise.severity import severity_of_name
from logboom.pipeline.normalise.times import TimeFormatError, compile_time_format
from logboom.pipeline.parse.grok import PatternError, compile_line
from logboom.pipeline.parse.grok_families import FAMILIES
from logboom.pipeline.plan.nodes import (
    WHEN_COLUMNS,
    CsvFormat,
    Expression,
    Format,
    JsonFormat,
    KeyValueFormat,
    LogfmtFormat,
    ParseRule,
    ParseTransform,
    PatternFormat,
    SyslogFormat,
    TextFormat,
)

SHAPE_FIELDS: Final = (
    "time",
    "severity",
    "severity_number",
    "severity_text",
    "service",
    "host",
    "body",
    "trace_id",
    "span_id",
    "traceparent",
)
"""What `map` may fill."""

DEFAULT_FIELDS: Final = ("service", "host", "severity")
"""What `defaults` may fill."""

_PLAIN: Final[dict[str, Format]] = {
    "json": JsonFormat(),
    "logfmt": LogfmtFormat(),
    "text": TextFormat(),
    "syslog_rfc3164": SyslogFormat(rfc=3164),
    "syslog_rfc5424": SyslogFormat(rfc=5424),
}
_WITH_OPTIONS: Final = {
    "pattern": ("pattern",),
    "csv": ("columns", "delimiter"),
    "key_value": ("pair_separator", "key_value_separator"),
}
FORMATS: Final = (*_PLAIN, *_WITH_OPTIONS, *FAMILIES)


def compile_parse(
    findings: Findings, path: KeyPath, name: str, model: ParseModel, own: Mapping[str, str]
) -> ParseTransform:
    """The transform; what is wrong with a rule is found and the rule left out."""
    rules = [
        _rule(findings, (*path, "rules", index), f"when_{name}_{index}", rule, own)
        for index, rule in enumerate(model.rules)
    ]
    return ParseTransform(
        name=name,
        line=findings.line(path),
        inputs=tuple(model.inputs),
        rules=tuple(rule for rule in rules if rule is not None),
        otherwise=model.otherwise,
        blank_lines=model.blank_lines,
    )


def _rule(
    findings: Findings, path: KeyPath, when_column: str, model: RuleModel, own: Mapping[str, str]
) -> ParseRule | None:
    _check_options(findings, path, model)
    _check_names(findings, path, model)
    _check_time(findings, path, model)
    if model.when is not None:
        _note_condition(findings, path, model.when)
    form = _format(findings, path, model, own)
    if form is None:
        return None
    family = FAMILIES.get(model.format)
    mapping = {field: tuple(names) for field, names in model.map.items()}
    scale = model.severity.numbers or (family.severity_scale if family else "otel")
    return ParseRule(
        label=model.name or model.format,
        line=findings.line(path),
        format=form,
        source=model.source,
        when=model.when,
        when_column=when_column if model.when is not None else None,
        time_formats=tuple(model.time_format or (family.time_formats if family else ())),
        timezone=model.timezone or "UTC",
        mapping=tuple({**dict(family.mapping if family else ()), **mapping}.items()),
        defaults=tuple(model.defaults.items()),
        severity_texts=_severity_texts(findings, path, model),
        severity_scale=scale,
        body_format=model.body_format,
    )


def _note_condition(findings: Findings, path: KeyPath, sql: str) -> None:
    at = (*path, "when")
    findings.expressions.append(
        Expression(sql=sql, columns=WHEN_COLUMNS, line=findings.line(at), where=findings.document.problem(at, "").where)
    )


def _format(findings: Findings, path: KeyPath, model: RuleModel, own: Mapping[str, str]) -> Format | None:
    if model.format in _PLAIN:
        return _PLAIN[model.format]
    if model.format == "csv":
        return _csv(findings, path, model)
    if model.format == "key_value":
        return _key_value(findings, path, model)
    family = FAMILIES.get(model.format)
    if family is not None:
        return _pattern(findings, path, model.format, family.patterns, {})
    if model.format != "pattern":
        findings.problem((*path, "format"), f"unknown format {model.format!r} ({hint(model.format, FORMATS)})")
        return None
    if not model.pattern:
        findings.problem(path, "key 'pattern' is missing: format pattern needs it")
        return None
    return _pattern(findings, (*path, "pattern"), model.name or "pattern", tuple(model.pattern), own)


def _csv(findings: Findings, path: KeyPath, model: RuleModel) -> Format | None:
    if not model.columns or len(set(model.columns)) != len(model.columns):
        findings.problem((*path, "columns"), "format csv needs the names of its columns, each once")
        return None
    delimiter = "," if model.delimiter is None else model.delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n':
        findings.problem((*path, "delimiter"), "should be one character, no quote and no line end")
        return None
    return CsvFormat(columns=tuple(model.columns), delimiter=delimiter)


def _key_value(findings: Findings, path: KeyPath, model: RuleModel) -> Format | None:
    pairs = " " if model.pair_separator is None else model.pair_separator
    inner = "=" if model.key_value_separator is None else model.key_value_separator
    if not pairs or not inner or pairs == inner or '"' in pairs + inner:
        findings.problem(path, "pair_separator and key_value_separator should be two different texts without quotes")
        return None
    return KeyValueFormat(pair_separator=pairs, key_value_separator=inner)


def _pattern(
    findings: Findings, path: KeyPath, label: str, patterns: tuple[str, ...], own: Mapping[str, str]
) -> Format | None:
    expanded = []
    for index, pattern in enumerate(patterns):
        at = (*path, index) if len(patterns) > 1 else path
        try:
            found = compile_line(pattern, own)
        except PatternError as error:
            findings.problem(at, f"pattern {error}")
            continue
        expanded.append(found)
    if len(expanded) != len(patterns):
        return None
    return PatternFormat(
        expressions=tuple(each.expression for each in expanded),
        fields=tuple(each.fields for each in expanded),
        label=label,
    )


def _check_options(findings: Findings, path: KeyPath, model: RuleModel) -> None:
    for form, options in _WITH_OPTIONS.items():
        for option in options:
            if model.format != form and getattr(model, option) is not None:
                findings.problem((*path, option), f"goes with format {form}, not with {model.format}")


def _check_names(findings: Findings, path: KeyPath, model: RuleModel) -> None:
    for field in model.map:
        if field not in SHAPE_FIELDS:
            findings.problem((*path, "map", field), f"unknown field {field!r} ({hint(field, SHAPE_FIELDS)})")
    for field in model.defaults:
        if field not in DEFAULT_FIELDS:
            findings.problem((*path, "defaults", field), f"unknown field {field!r} ({hint(field, DEFAULT_FIELDS)})")


def _check_time(findings: Findings, path: KeyPath, model: RuleModel) -> None:
    for form in model.time_format or ():
        try:
            compile_time_format(form)
        except TimeFormatError as error:
            findings.problem((*path, "time_format"), str(error))
    if model.timezone is not None:
        try:
            ZoneInfo(model.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            known = sorted(available_timezones())
            close = hint(model.timezone, known)
            close = close if close.startswith("did") else "names are those of IANA, such as Europe/Berlin"
            findings.problem((*path, "timezone"), f"unknown timezone {model.timezone!r} ({close})")


def _severity_texts(findings: Findings, path: KeyPath, model: RuleModel) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for text, meant in model.severity.texts.items():
        number = meant if isinstance(meant, int) else severity_of_name(meant)
        if number is None or not 1 <= number <= 24:
            message = f"{meant!r} is no severity (1 to 24, or a name such as INFO, WARN2, ERROR)"
            findings.problem((*path, "severity", "texts", text), message)
        else:
            found.append((text.lower(), number))
    return tuple(found)
