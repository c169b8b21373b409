"""The format `pattern`: a user-defined expression with named groups, applied with RE2 to whole columns.

Knows expressions and the types of their groups. Must not know the meaning of a field. An empty group is treated as
absent; if several groups have the same name, the first that is not empty is used.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.settings import Texts
from logboom.pipeline.findings import Part
from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.parse.formats.base import FormatNode, FormatType, RuleModel
from logboom.pipeline.parse.grok import Expanded, PatternError, PatternField, compile_line
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines


class PatternRuleModel(RuleModel):
    """A user-defined expression: RE2 with `%{NAME}`."""

    format: Literal["pattern"]
    pattern: Texts | None = None
    """One expression for whole lines, or several of which the first that matches wins; required."""


class PatternFormat(FormatNode, frozen=True, kw_only=True, tag="pattern"):
    """RE2 expressions without `%{NAME}`; the first that matches the whole line provides the fields."""

    expressions: tuple[str, ...]
    fields: tuple[tuple[PatternField, ...], ...]
    """The named groups of each expression."""
    label: str = "pattern"
    """The name in the reason for a line without a match."""

    def read_rows(self, values: pa.Array) -> list[Row]:
        return _read(text_lines(values), self)


def compile_patterns(label: str, patterns: tuple[str, ...], own: Mapping[str, str], part: Part) -> PatternFormat | None:
    """The format with the expressions in the key `part`, and the file's `own` definitions of `%{NAME}`."""
    expanded = []
    for index, pattern in enumerate(patterns):
        try:
            found = compile_line(pattern, own)
        except PatternError as error:
            part.problem(index if len(patterns) > 1 else (), f"pattern {error}")
            continue
        expanded.append(found)
    return _format_of(label, expanded) if len(expanded) == len(patterns) else None


def own_patterns(label: str, patterns: tuple[str, ...]) -> PatternFormat:
    """The format with the expressions of a known program, which are valid."""
    return _format_of(label, [compile_line(pattern, {}) for pattern in patterns])


def _format_of(label: str, found: Sequence[Expanded]) -> PatternFormat:
    return PatternFormat(
        expressions=tuple(each.expression for each in found), fields=tuple(each.fields for each in found), label=label
    )


def _compile(model: PatternRuleModel, part: Part) -> PatternFormat | None:
    if not model.pattern:
        part.problem((), "key 'pattern' is missing: format pattern needs it")
        return None
    return compile_patterns(model.name or "pattern", tuple(model.pattern), part.patterns, part.at("pattern"))


def _read(lines: pa.Array, form: PatternFormat) -> list[Row]:
    rows: list[Row] = [f"does not match {form.label}"] * len(lines)
    left = np.arange(len(lines))
    # Each expression is tried on all lines that no earlier one has matched.
    for expression, fields in zip(form.expressions, form.fields, strict=True):
        part = lines if len(left) == len(lines) else lines.take(pa.array(left))
        groups = pc.extract_regex(part, expression)
        matched = groups.is_valid().to_numpy(zero_copy_only=False)
        found = groups if matched.all() else groups.filter(pa.array(matched))
        for index, row in zip(left[matched].tolist(), _rows(found, fields), strict=True):
            rows[index] = row
        left = left[~matched]
        if not len(left):
            return rows
    texts = lines.take(pa.array(left)).to_pylist()
    for index, text in zip(left.tolist(), texts, strict=True):
        if not text:
            rows[index] = NO_VALUE if text is None else EMPTY
    return rows


def _group_lists(groups: pa.Array, fields: tuple[PatternField, ...]) -> list[list[Any]]:
    """A list of values per field, with the field's type."""
    lists = []
    for field in fields:
        values = pc.struct_field(groups, field.group).to_pylist()
        convert = _CONVERSIONS.get(field.type)
        lists.append(values if convert is None else [convert(value) for value in values])
    return lists


def _rows(groups: pa.Array, fields: tuple[PatternField, ...]) -> list[Fields]:
    names = [field.name for field in fields]
    rows = zip(*_group_lists(groups, fields), strict=True)
    if len(set(names)) == len(names):
        return [{name: value for name, value in zip(names, row, strict=True) if value or value == 0} for row in rows]
    backwards = names[::-1]
    return [
        {name: value for name, value in zip(backwards, row[::-1], strict=True) if value or value == 0} for row in rows
    ]


def _integer(text: str) -> Any:
    """Convert to integers; other texts are kept as written."""
    try:
        return int(text) if text else None
    except ValueError:
        return text


def _floating(text: str) -> Any:
    try:
        number = float(text) if text else None
    except ValueError:
        return text
    return number if number is None or abs(number) < float("inf") else text


_CONVERSIONS: Final[dict[str, Callable[[str], Any]]] = {"int": _integer, "float": _floating}


FORMATS: Final = (FormatType("pattern", PatternRuleModel, PatternFormat, _compile),)
